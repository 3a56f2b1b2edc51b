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

// An emulated device and what is known of it before it was asked.
struct EmulatorSetup {
  CoreOptions core;
  DeviceInfo known;
};
// `name` is kEmulator's. kNotFound for a profile that is not there, and the errors of
// FindDeviceProfile. `note` is DeviceInfo::note.
Result<EmulatorSetup> SetUpEmulator(const DeviceName& name, const OpenOptions& options,
                                    std::string note = {});
Result<std::unique_ptr<Device>> OpenEmulator(const EmulatorSetup& setup);

// An emulated chip of the size of `info`, which a device has said: kResourceExhausted if that is
// more than half a gigabyte.
Result<std::unique_ptr<Chip>> OpenStandIn(const DeviceInfo& info, int threads);

// "emu,emu": those of the list, which OpenDevice opens, as one.
Result<std::unique_ptr<Device>> OpenGroup(const DeviceName& name, const OpenOptions& options);

// kInvalidArgument: the CPU, which is no device, was to be opened as one.
Status CpuIsNoDevice();

// One of each profile, and the stepped one. The first is the default, if that is wanted.
std::vector<DeviceListing> ListEmulators(bool has_default);

}  // namespace atollrt
