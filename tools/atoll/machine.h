// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/atoll/report.h"

namespace atollcmd {

// What a measurement was made on: "cpu" (the name of the CPU), "kernels", "logical_cpus", "system",
// and "peak_gmacs": of one core, measured now (peak_loop.h), in 10^9 multiply-accumulates a second.
Json MachineJson();

}  // namespace atollcmd
