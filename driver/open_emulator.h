// SPDX-License-Identifier: Apache-2.0
//
// The part of OpenDevice (open_device.h) that ends in an emulator. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/device.h"
#include "driver/emulator/core.h"
#include "driver/open_device.h"
#include "driver/usb_device.h"
#include "runtime/base/status.h"

namespace atollrt {

// What a device string says of an emulator.
struct EmulatorName {
  std::string_view profile;  // "": the default
  Face face = Face::kDirect;
};

// Nothing if it is no emulator's.
std::optional<EmulatorName> ParseEmulatorName(std::string_view device);

// An emulated device and what is known of it before it was asked.
struct EmulatorSetup {
  CoreOptions core;
  UsbDevice::Options device;
};
// kNotFound for a profile that is not there, and the errors of ReadDeviceProfile. `note` is
// DeviceInfo::note.
Result<EmulatorSetup> SetUpEmulator(const EmulatorName& name, const OpenOptions& options,
                                    std::string note = {});
Result<std::unique_ptr<Device>> OpenEmulator(EmulatorSetup setup);

// An emulated device of the size of `info`.
Result<std::unique_ptr<Device>> OpenStandIn(const DeviceInfo& info, int threads);

// "emu,emu": those of the list, which OpenDevice opens, as one.
Result<std::unique_ptr<Device>> OpenGroup(const OpenOptions& options);

// kInvalidArgument for a device string that is none.
Status NoSuchDevice(const std::string& device);

// One of each profile, and the stepped one. The first is the default, if that is wanted.
std::vector<DeviceListing> ListEmulators(bool has_default);

}  // namespace atollrt
