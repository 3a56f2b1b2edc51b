// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/open_coral.h"

#include <algorithm>
#include <utility>

#include "driver/coral/firmware.h"
#include "driver/usb/usb_ids.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kPermissionTimeout{2000};
constexpr std::chrono::milliseconds kPermissionPoll{100};

Result<std::unique_ptr<UsbTransport>> OpenPatiently(UsbBus* bus, const UsbDeviceInfo& device,
                                                    const NowFunction& now) {
  constexpr uint8_t kInterface = 0;
  const Deadline deadline = now() + kPermissionTimeout;
  for (;;) {
    Result<std::unique_ptr<UsbTransport>> transport = bus->Open(device, kInterface);
    if (transport.code() != StatusCode::kPermissionDenied || now() >= deadline) return transport;
    // Permissions change without a sign on the bus.
    (void)bus->WaitForChange(bus->generation(), std::min(deadline, now() + kPermissionPoll));
  }
}

}  // namespace

Result<std::unique_ptr<Chip>> OpenCoral(UsbBus* bus, const UsbDeviceInfo& device,
                                        const CoralOptions& options) {
  UsbDeviceInfo ready = device;
  if (device.id == kCoralBootUsbId) {
    ATOLL_ASSIGN_OR_RETURN(const CoralFirmware firmware, FindCoralFirmware(options.firmware));
    Log(LogSeverity::kInfo, "device %s: a Coral without firmware at port %s gets '%s'",
        options.name.c_str(), device.path.c_str(), firmware.path.c_str());
    ATOLL_ASSIGN_OR_RETURN(ready, DownloadCoralFirmware(bus, device, firmware.image, options.now));
  }
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport,
                         OpenPatiently(bus, ready, options.now));
  return CoralChip::Open(std::move(transport), {.name = options.name,
                                                .path = ready.path,
                                                .speed = ready.speed,
                                                .performance = options.performance,
                                                .now = options.now});
}

}  // namespace atollrt
