// SPDX-License-Identifier: Apache-2.0
//
// The part of OpenDevice (open_device.h) that ends in an emulator. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/device/device.h"
#include "driver/device_name.h"
#include "driver/emulator/core.h"
#include "driver/open_device.h"

namespace atollrt {

struct EmulatorSetup {
  CoreOptions core;
  DeviceOrigin known;
};
// `name` is kEmulator's. kNotFound for a profile that is not there, and the errors of
// FindDeviceProfile. `note` is DeviceOrigin::note.
Result<EmulatorSetup> SetUpEmulator(const DeviceName& name, const OpenOptions& options,
                                    std::string note = {});
Result<std::unique_ptr<Device>> OpenEmulator(const EmulatorSetup& setup);

// The chip of a setup, at the end of an emulated USB cable, or on PCIe, which libatoll-core has
// not: there it is the cable, too.
Result<std::unique_ptr<Chip>> OpenEmulatedOnUsb(const EmulatorSetup& setup);
Result<std::unique_ptr<Chip>> OpenEmulatedOnPcie(const EmulatorSetup& setup);

// An emulated chip of the size of `info`, which a device has said: kResourceExhausted if that is
// more than half a gigabyte.
Result<std::unique_ptr<Chip>> OpenStandIn(const DeviceInfo& info, int threads);

// One of each profile, and the stepped one. The first is the default, if that is wanted.
std::vector<DeviceListing> ListEmulators(bool has_default);

}  // namespace atollrt
