// SPDX-License-Identifier: Apache-2.0
//
// ProtocolSession: what a host does with one Atoll-1 (docs/protocol.md §5). It knows registers,
// records and events, but neither executables nor requests; atoll1_chip.h puts those on top.
//
// Calls block until they are done or `deadline` passes, then kTimeout. Other errors are the
// transport's; a device that breaks the protocol gives kDeviceLost. After any error the
// conversation is broken off in an unknown place: ResetCore, or a reset of the transport and
// ResetCore, begins it again. One caller at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "driver/atoll1/protocol.h"
#include "driver/device/link_meter.h"
#include "driver/isa/device_shape.h"
#include "driver/usb/usb_transport.h"

namespace atollrt {

class ProtocolSession {
 public:
  // `transport` must outlive the session.
  ProtocolSession(UsbTransport* transport, NowFunction now);

  // Reads the registers that never change, and takes what a profile may be (device_profile.h).
  // kUnsupported if it is no Atoll-1 or has another ISA version than kIsaVersion; kDeviceLost with
  // the register and what it must be.
  Result<DeviceFigures> Identify(Deadline deadline);

  // Stops the program, clears the fault and empties both directions. Memories become undefined.
  Status ResetCore(Deadline deadline);

  // Stores encoded instructions at `program_offset` of program memory.
  Status StoreInstructions(uint32_t program_offset, std::span<const uint8_t> encoded,
                           Deadline deadline);

  // One run of a program: what it takes and gives. Large inputs and parameters are sent from
  // where they are, outputs are received in place.
  struct Job {
    StartMessage start;
    std::span<const std::span<const uint8_t>> inputs = {};
    std::span<const uint8_t> parameters = {};
    std::span<const std::span<uint8_t>> outputs = {};
  };
  // The event that ended the program: completed, with all outputs received, or faulted.
  Result<Event> Run(const Job& job, Deadline deadline);

  struct Fault {
    FaultCode code = FaultCode::kNone;
    uint32_t instruction = 0;
    uint32_t detail = 0;
  };
  Result<Fault> ReadFault(Deadline deadline);

  // Measures what crosses bulk OUT and bulk IN; the caller starts and stops it.
  LinkMeter& meter() { return meter_; }

 private:
  Result<uint32_t> Read32(Register address, Deadline deadline);
  Status Send(std::span<const uint8_t> bytes, Deadline deadline);
  Status Add(std::span<const uint8_t> bytes, Deadline deadline);
  Status AddRecord(RecordTag tag, std::span<const uint8_t> payload, Deadline deadline,
                   std::span<const uint8_t> prefix = {});
  Status Flush(Deadline deadline);
  Status DrainEndpoint(uint8_t endpoint);
  enum class Received { kAll, kFaulted };
  Result<Received> Receive(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline);

  UsbTransport* transport_;
  NowFunction now_;
  std::vector<uint8_t> pending_;  // small parts of records, to be sent as one transfer
  LinkMeter meter_;
};

}  // namespace atollrt
