// SPDX-License-Identifier: Apache-2.0
//
// The USB of this computer as a UsbBus. It has two implementations, and a program links one of
// them: libusb/ (atoll_libusb), and one that has no USB (atoll_no_usb), for libatoll-core.
#pragma once

#include <memory>

#include "driver/usb/usb_bus.h"

namespace atollrt {

// One for the whole process while somebody holds it. Nothing happens before its first use; where
// there is no USB its calls give kNotFound with the reason. nullptr if this program was built
// without USB. Thread-safe.
std::shared_ptr<UsbBus> SystemUsbBus();

}  // namespace atollrt
