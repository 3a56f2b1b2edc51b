// SPDX-License-Identifier: Apache-2.0
//
// UsbTransport: the seam downward. One opened USB device, as its endpoints: control, bulk OUT,
// bulk IN, interrupt IN. Behind it are the emulated device, libusb, scripts and faults; the driver
// cannot tell which (docs/protocol.md).
//
// Calls block until they are done or their deadline passes; an implementation may keep as many
// transfers in flight below as it likes. Any thread may call; calls on different endpoints may
// overlap, calls on one endpoint may not. Cancel makes all pending and later calls return
// kCancelled until Reset.
//
// Errors of all calls: kInvalidArgument if the device refuses (stall; a stalled bulk or interrupt
// endpoint is cleared and can be used again), kTimeout, kCancelled, and kDeviceLost if the device
// is gone or the bus failed: Reset tells which.
#pragma once

#include <cstdint>
#include <span>

#include "atoll/status.h"
#include "runtime/base/clock.h"

namespace atollrt {

// The setup packet of a control request, less its length (USB 2.0, 9.3).
struct ControlSetup {
  uint8_t request_type = 0;  // bmRequestType; bit 7 set: device to host
  uint8_t request = 0;       // bRequest
  uint16_t value = 0;        // wValue
  uint16_t index = 0;        // wIndex
  bool operator==(const ControlSetup&) const = default;

  bool is_in() const { return (request_type & 0x80) != 0; }
};

class UsbTransport {
 public:
  virtual ~UsbTransport() = default;

  // Sends or fills all of `data` (by the direction bit) or fails.
  virtual Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) = 0;

  // Sends all of `data`, or fails; after a failure an unknown part may have been taken.
  virtual Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) = 0;

  // Receives up to data.size() bytes: what the device sends until the buffer is full or a short
  // packet ends the transfer. Returns the number of bytes, which may be 0. Bytes of a packet that
  // do not fit are kept for the next call on that endpoint, until Reset. kTimeout means that
  // nothing was received; a deadline that has passed already takes what is there.
  virtual Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) = 0;
  virtual Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                                     Deadline deadline) = 0;

  // Ends all calls in progress with kCancelled. Safe from any thread, at any time.
  virtual void Cancel() = 0;

  // USB port reset: the device returns to its power-on state. kDeviceLost if it is gone, or came
  // back as another; then every later call gives that, and UsbBus::Open is the way on.
  virtual Status Reset(Deadline deadline) = 0;
};

}  // namespace atollrt
