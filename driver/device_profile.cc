// SPDX-License-Identifier: Apache-2.0
#include "driver/device_profile.h"

#include <string>

namespace atollrt {
namespace {

// Link rates are those that published Coral latencies imply (docs/isa.md §1 and the README's
// note on modelled figures).
constexpr DeviceProfile kProfiles[] = {
    {.name = "usb3", .summary = "64x64 at 500 MHz, 8 MiB, USB 3"},
    {.name = "usb2",
     .summary = "64x64 at 500 MHz, 8 MiB, USB 2",
     .link_bytes_per_second = 36'600'000,
     .host_seconds = 2.5e-3},
    {.name = "usb3-pi4",
     .summary = "64x64 at 500 MHz, 8 MiB, USB 3 of a Raspberry Pi 4",
     .link_bytes_per_second = 275'000'000,
     .host_seconds = 2.0e-3},
    {.name = "pcie",
     .summary = "64x64 at 500 MHz, 8 MiB, PCIe gen2 x1",
     .link_bytes_per_second = 390'000'000,
     .host_seconds = 0.35e-3},
    {.name = "32x32",
     .summary = "32x32 at 500 MHz, 8 MiB, USB 3",
     .array_rows = 32,
     .array_columns = 32},
    {.name = "128x128",
     .summary = "128x128 at 500 MHz, 8 MiB, USB 3",
     .array_rows = 128,
     .array_columns = 128},
    {.name = "1mib",
     .summary = "64x64 at 500 MHz, 1 MiB, USB 3 (streams what does not fit)",
     .memory_bytes = 1u << 20},
};

}  // namespace

std::span<const DeviceProfile> DeviceProfiles() { return kProfiles; }

Result<DeviceProfile> FindDeviceProfile(std::string_view name) {
  if (name.empty()) return kProfiles[0];
  std::string known;
  for (const DeviceProfile& profile : kProfiles) {
    if (name == profile.name) return profile;
    known += known.empty() ? "" : ", ";
    known += profile.name;
  }
  return NotFound("no device profile '%.*s'; there are: %s", static_cast<int>(name.size()),
                  name.data(), known.c_str());
}

}  // namespace atollrt
