// SPDX-License-Identifier: Apache-2.0
//
// DeviceProfile: what an emulated Atoll-1 is made of and what it is plugged into. The numbers
// behind `emu:<profile>`; a real device reports its own through registers. A profile is a JSON file
// (docs/isa.md §1, "Device profiles"): those of driver/profiles/ are built in, others come from
// the user. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "atoll/status.h"
#include "driver/isa/device_shape.h"

namespace atollrt {

struct DeviceProfile : DeviceFigures {
  DeviceProfile()
      : DeviceFigures{{.array_rows = 64,
                       .array_columns = 64,
                       .memory_bytes = 8u << 20,
                       .program_memory_bytes = 1u << 20},
                      500'000'000,
                      455'000'000} {}

  std::string name;               // what follows "emu:"
  std::string summary;            // for `atoll devices`: "64x64 at 500 MHz, 8 MiB, USB 3"
  double host_seconds = 0.30e-3;  // what a host with this link spends on a request
  bool on_pcie = false;           // the link is PCIe, else USB
};

// All built-in profiles; the first is the default, "usb3".
std::span<const DeviceProfile> DeviceProfiles();

// A number of a profile: its key in a file and what it may be.
struct ProfileKey {
  const char* name;
  const char* meaning;
  double min, max;
  double step;  // what it must be a multiple of: registers hold no finer values; 0: of nothing
  // Where it is stored; neither: host_seconds.
  uint32_t DeviceShape::*small = nullptr;
  uint64_t DeviceFigures::*large = nullptr;
};
std::span<const ProfileKey> ProfileKeys();

// The numbers in the order of ProfileKeys(). A device reports all but the last through registers.
enum class ProfileNumber : size_t {
  kArrayRows,
  kArrayColumns,
  kClock,
  kMemory,
  kProgramMemory,
  kLink,
  kHost,
};

// Stores a number that comes from outside: from the file of a profile, or a register of a device.
// kInvalidArgument that `what` is `value` and what it must be, unless `number` may be that:
// "array_rows is 0, must be a whole number from 1 to 1024".
Status SetProfileNumber(ProfileNumber number, const char* what, double value,
                        DeviceProfile* profile);

// The profile that a file's text describes, which is hostile: one object of ProfileKeys(), "link"
// ("usb" or "pcie") and "summary", each at most once; what is absent is as above, and the summary
// made from the numbers. kInvalidArgument names the key and what it may be, or where the text is no
// JSON.
Result<DeviceProfile> ParseDeviceProfile(std::string name, std::string_view text);

// The built-in profile of that name ("" means the default), or the one in the file of that name if
// it ends in ".json". kNotFound listing the names if there is no such profile or file, or the
// errors of ParseDeviceProfile.
Result<DeviceProfile> FindDeviceProfile(std::string_view name);

}  // namespace atollrt
