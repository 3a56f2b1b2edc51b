// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "tools/atoll/report.h"

namespace atollcmd {

// How a machine fares, as its kernel says: a hot one is slow, and so is one whose clock is low.
struct MachineState {
  std::optional<double> temperature_c;  // of the hottest thermal zone
  std::optional<double> clock_mhz;      // mean of the CPUs that are online
};

// Of the files below `root`, which is /sys but for tests; nothing where the kernel shows none.
MachineState ReadMachineState(const std::string& root = "/sys");

// "temperature_c", "clock_mhz"; null where the kernel shows none.
Json ToJson(const MachineState& state);

}  // namespace atollcmd
