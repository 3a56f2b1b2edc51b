// SPDX-License-Identifier: Apache-2.0
//
// The firmware of a Coral USB accelerator. The stick forgets it with every loss of power and then
// shows up as another device (1a6e:089a), which takes it by USB's standard for firmware downloads
// (DFU 1.1) and comes back as itself (18d1:9302). Atoll ships no firmware.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

struct CoralFirmware {
  std::string path;
  std::vector<uint8_t> image;
  bool is_known = false;  // the published file, byte for byte
};
// Reads the file at `path`, or if that is empty, the first of what the environment variable
// ATOLL_CORAL_FIRMWARE says, else of the files apex_latest_single_ep.bin in the user's and the
// system's data directories and in /lib/firmware. Warns of one that is not the published file.
// kNotFound, with what to get from where and where to put it, if there is none; kInvalidArgument if
// it cannot be firmware; kPermissionDenied.
Result<CoralFirmware> FindCoralFirmware(const std::string& path);

// Gives `device`, which waits for firmware, the image, verifies it, restarts the device and waits
// for it to come back, on the same port or, with another speed, at its companion. The device as it
// is then. Tries a second time what does not work at once. kDeviceLost if it stays away or comes
// back as it was, kTimeout if it stays busy, otherwise errors of the bus.
Result<UsbDeviceInfo> DownloadCoralFirmware(UsbBus* bus, const UsbDeviceInfo& device,
                                            std::span<const uint8_t> image, const NowFunction& now);

}  // namespace atollrt
