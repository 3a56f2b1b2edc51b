// SPDX-License-Identifier: Apache-2.0
//
// OpenCoral: from a Coral on a bus, with its firmware or without, to a Chip.
#pragma once

#include <memory>
#include <string>

#include "atoll/status.h"
#include "driver/coral/coral_chip.h"
#include "driver/device/chip.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

struct CoralOptions {
  std::string name = "usb";  // DeviceInfo::name
  CoralPerformance performance = CoralPerformance::kMax;
  std::string firmware = {};  // a file; empty: where FindCoralFirmware looks
  NowFunction now = Clock::now;
};

// `device` is a Coral (usb_ids.h). Gives it its firmware if it has none, opens it and brings it up.
// A device that has just come back may be out of bounds for a moment, until the system has set its
// permissions: that is waited for. Errors of FindCoralFirmware, DownloadCoralFirmware, UsbBus::Open
// and CoralChip::Open.
Result<std::unique_ptr<Chip>> OpenCoral(UsbBus* bus, const UsbDeviceInfo& device,
                                        const CoralOptions& options);

}  // namespace atollrt
