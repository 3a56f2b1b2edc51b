// SPDX-License-Identifier: Apache-2.0
//
// CoralUsbLink: how a host reaches a Coral whose firmware runs over USB: registers by control
// requests, and through its endpoints what belongs to runs: descriptors out, outputs and events in
// (docs/coral.md). What the registers mean is in session.h.
//
// Calls block until they are done or their deadline passes, then kTimeout; no transfer waits longer
// than kCoralPatience for a sign of life. Other errors are the transport's; a device that breaks
// the protocol gives kDeviceLost. One caller at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "atoll/status.h"
#include "driver/coral/registers.h"
#include "driver/device/link_meter.h"
#include "driver/usb/usb_transport.h"
#include "runtime/base/bytes.h"

namespace atollrt {

// How long a transfer waits for the device to take or give it. No inference takes a Coral so long.
inline constexpr std::chrono::milliseconds kCoralPatience{4000};

class CoralUsbLink {
 public:
  // `transport` must outlive the link.
  CoralUsbLink(UsbTransport* transport, NowFunction now)
      : transport_(transport), now_(std::move(now)) {}

  template <typename Register>
  Result<coral::Word<Register>> Read(Register address, Deadline deadline) {
    uint8_t data[sizeof(coral::Word<Register>)] = {};
    ATOLL_RETURN_IF_ERROR(Access(true, static_cast<uint32_t>(address), data, deadline));
    return LoadLittleEndian<coral::Word<Register>>(data);
  }
  template <typename Register>
  Status Write(Register address, coral::Word<Register> value, Deadline deadline) {
    uint8_t data[sizeof(value)];
    StoreLittleEndian(data, value);
    return Access(false, static_cast<uint32_t>(address), data, deadline);
  }

  // Sends all of `payload` under its header.
  Status Send(coral::Tag tag, std::span<const uint8_t> payload, Deadline deadline);
  // Receives exactly `output` from the stream of outputs.
  Status Receive(std::span<uint8_t> output, Deadline deadline);
  // Waits for the event of interrupt `number`, 0 to 3.
  Status AwaitInterrupt(uint32_t number, Deadline deadline);
  // The next word of interrupts for faults, without waiting; nothing if there is none.
  Result<std::optional<uint32_t>> TakeFaults();

  // Measures what crosses the endpoints; the caller starts and stops it.
  LinkMeter& meter() { return meter_; }

 private:
  Deadline Sooner(Deadline deadline, std::chrono::milliseconds patience) const;
  Status Access(bool read, uint32_t address, std::span<uint8_t> data, Deadline deadline);

  UsbTransport* const transport_;
  const NowFunction now_;
  LinkMeter meter_;
};

}  // namespace atollrt
