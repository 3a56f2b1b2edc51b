// SPDX-License-Identifier: Apache-2.0
#include "driver/usb/usb_bus.h"

namespace atollrt {

std::shared_ptr<UsbBus> SystemUsbBus() { return nullptr; }

}  // namespace atollrt
