// SPDX-License-Identifier: Apache-2.0
//
// The USB ids of the devices that this driver knows.
#pragma once

#include "driver/usb/usb_bus.h"

namespace atollrt {

inline constexpr UsbId kAtollUsbId{0x1209, 0x0001};
// A Coral USB Accelerator without firmware, as it is after power comes on, and with it.
inline constexpr UsbId kCoralBootUsbId{0x1a6e, 0x089a};
inline constexpr UsbId kCoralUsbId{0x18d1, 0x9302};

inline bool IsCoral(const UsbId& id) { return id == kCoralUsbId || id == kCoralBootUsbId; }
inline bool IsKnown(const UsbId& id) { return id == kAtollUsbId || IsCoral(id); }

}  // namespace atollrt
