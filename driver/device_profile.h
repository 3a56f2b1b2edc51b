// SPDX-License-Identifier: Apache-2.0
//
// DeviceProfile: what an emulated Atoll-1 is made of and what it is plugged into. The numbers
// behind `emu:<profile>`; a real device reports its own through registers. Plain data.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/status.h"

namespace atollrt {

struct DeviceProfile {
  const char* name;
  const char* summary;  // for `atoll devices`: "64x64 at 500 MHz, 8 MiB, USB 3"
  uint32_t array_rows = 64;
  uint32_t array_columns = 64;
  uint64_t clock_hz = 500'000'000;
  uint64_t memory_bytes = 8u << 20;
  uint64_t program_memory_bytes = 1u << 20;
  uint64_t link_bytes_per_second = 455'000'000;
  double host_seconds = 0.30e-3;  // what a host with this link spends on a request
};

// All built-in profiles; the first is the default, "usb3".
std::span<const DeviceProfile> DeviceProfiles();

// The profile of that name ("" means the default), or kNotFound listing the names.
Result<DeviceProfile> FindDeviceProfile(std::string_view name);

}  // namespace atollrt
