// SPDX-License-Identifier: Apache-2.0
//
// What a device is made of (docs/isa.md §1), whether a profile says so, the device itself or who
// opens another one in its place.
#pragma once

#include <cstdint>

namespace atollrt {

enum class DeviceFamily : uint8_t { kAtoll1, kCoral };

// What executables are compiled for: they run on every device of an equal shape.
struct DeviceShape {
  DeviceFamily family = DeviceFamily::kAtoll1;
  uint32_t array_rows = 0;
  uint32_t array_columns = 0;
  uint64_t memory_bytes = 0;          // on-chip memory for parameters and activations
  uint64_t program_memory_bytes = 0;  // on-chip memory for instructions
  bool operator==(const DeviceShape&) const = default;
};

// With its speeds, in which devices of one shape may differ.
struct DeviceFigures : DeviceShape {
  uint64_t clock_hz = 0;
  uint64_t link_bytes_per_second = 0;  // of the device's link, as modelled or as measured

  const DeviceShape& shape() const { return *this; }
  bool operator==(const DeviceFigures&) const = delete;  // say whether it is shape() that you mean
};

}  // namespace atollrt
