// SPDX-License-Identifier: Apache-2.0
//
// UsbBus: the USB devices that are plugged in, and the way to open one. Behind it are libusb, the
// emulator and, in tests, scripts; who opens a device cannot tell which. A device is known by the
// port that it is plugged into, which stays when it takes other ids (after a firmware download) or
// another address (after a reset or a replug).
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/usb/usb_transport.h"

namespace atollrt {

enum class UsbSpeed : uint8_t { kUnknown, kLow, kFull, kHigh, kSuper, kSuperPlus };

struct UsbId {
  uint16_t vendor = 0;
  uint16_t product = 0;
  bool operator==(const UsbId&) const = default;
};

// The devices that this driver knows. A Coral USB Accelerator has another id before it has its
// firmware, as it is after power comes on.
inline constexpr UsbId kAtollUsbId{0x1209, 0x0001};
inline constexpr UsbId kCoralBootUsbId{0x1a6e, 0x089a};
inline constexpr UsbId kCoralUsbId{0x18d1, 0x9302};

inline bool IsCoral(const UsbId& id) { return id == kCoralUsbId || id == kCoralBootUsbId; }
inline bool IsKnown(const UsbId& id) { return id == kAtollUsbId || IsCoral(id); }
// What a known one is called.
inline const char* UsbProductName(const UsbId& id) {
  return id == kCoralUsbId   ? "Coral USB Accelerator"
         : id == kAtollUsbId ? "Atoll-1"
                             : "Coral USB Accelerator without firmware";
}

struct UsbDeviceInfo {
  UsbId id;
  std::string path;  // bus and ports as Linux writes them: "2-3.1"
  int address = 0;   // on the bus; changes each time that it appears
  UsbSpeed speed = UsbSpeed::kUnknown;
  bool operator==(const UsbDeviceInfo&) const = default;
};

class UsbBus {
 public:
  virtual ~UsbBus() = default;

  // What is plugged in now, in the order of paths. An empty list is no error.
  virtual Result<std::vector<UsbDeviceInfo>> List() = 0;

  // Opens a device of List and claims one of its interfaces; destruction of the transport releases
  // and closes it. kDeviceLost if it is gone, kDeviceBusy if another program has it,
  // kPermissionDenied if this user may not, each with what to do about it.
  virtual Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device,
                                                     uint8_t interface_number) = 0;

  // A number that changes whenever a device comes or goes.
  virtual uint64_t generation() = 0;
  // Blocks until generation() is no longer `seen` or `deadline` has passed; true in the former
  // case. Without word from the system it looks itself, a few times in a second.
  virtual bool WaitForChange(uint64_t seen, Deadline deadline) = 0;
};

// The USB of this computer, one for the whole process while somebody holds it. Nothing happens
// before its first use; where there is no USB its calls give kNotFound with the reason. nullptr if
// this program was built without USB: it links libusb/ (atoll_libusb) or no_usb_bus.cc
// (atoll_no_usb). Thread-safe.
std::shared_ptr<UsbBus> SystemUsbBus();

}  // namespace atollrt
