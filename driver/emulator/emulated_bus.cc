// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/emulated_bus.h"

#include <thread>

#include "atoll/status.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

Result<std::vector<UsbDeviceInfo>> EmulatedBus::List() {
  std::vector<UsbDeviceInfo> list;
  for (size_t i = 0; i < devices_.size(); ++i) {
    list.push_back({.id = kAtollUsbId,
                    .path = Format("0-%zu", i + 1),
                    .address = static_cast<int>(i) + 1,
                    .speed = UsbSpeed::kSuper});
  }
  return list;
}

Result<std::unique_ptr<UsbTransport>> EmulatedBus::Open(const UsbDeviceInfo& device,
                                                        uint8_t interface_number) {
  const auto index = static_cast<size_t>(device.address) - 1;
  if (index >= devices_.size()) return DeviceLost("no device at port %s", device.path.c_str());
  if (interface_number != 0) {
    return InvalidArgument("the device has no interface %u", interface_number);
  }
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<EmulatedTransport> transport,
                         EmulatedTransport::Create(devices_[index]));
  return std::unique_ptr<UsbTransport>(std::move(transport));
}

bool EmulatedBus::WaitForChange(uint64_t seen, Deadline deadline) {
  if (seen != 0) return true;
  std::this_thread::sleep_until(deadline);
  return false;
}

}  // namespace atollrt
