// SPDX-License-Identifier: Apache-2.0
//
// EmulatedBus: a UsbBus into which emulated devices are plugged for good. Each Open powers the
// device up anew.
#pragma once

#include <vector>

#include "driver/emulator/core.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

class EmulatedBus final : public UsbBus {
 public:
  // Ports "0-1", "0-2", ... with one device each.
  explicit EmulatedBus(std::vector<CoreOptions> devices) : devices_(std::move(devices)) {}

  Result<std::vector<UsbDeviceInfo>> List() override;
  // Errors as Core::Create, too.
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device,
                                             uint8_t interface_number) override;
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

 private:
  const std::vector<CoreOptions> devices_;
};

}  // namespace atollrt
