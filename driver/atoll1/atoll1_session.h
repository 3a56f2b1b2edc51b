// SPDX-License-Identifier: Apache-2.0
//
// Atoll1Session: what a host does with one Atoll-1, whatever its link is: records over USB
// (protocol_session.h), a ring of descriptors on PCIe (ring_session.h). It knows registers,
// programs and events, but neither executables nor requests; atoll1_chip.h puts those on top.
//
// Calls block until they are done or `deadline` passes, then kTimeout. Other errors are the link's;
// a device that breaks the protocol gives kDeviceLost or kInternal. After any error the
// conversation is broken off in an unknown place and what was begun is forgotten: Quiesce, then
// ResetCore, or ResetDevice and ResetCore, begins it again. One caller at a time; memory may be
// registered and pinned, and taken back, by any thread at any time.
#pragma once

#include <cstdint>
#include <span>

#include "atoll/status.h"
#include "driver/atoll1/protocol.h"
#include "driver/device/link_meter.h"
#include "driver/isa/device_shape.h"
#include "runtime/base/clock.h"

namespace atollrt {

class Atoll1Session {
 public:
  virtual ~Atoll1Session() = default;

  // Reads the registers that never change, and takes what a profile may be (device_profile.h).
  // kUnsupported if it is no Atoll-1 or has another ISA version than kIsaVersion; kDeviceLost with
  // the register and what it must be.
  Result<DeviceFigures> Identify(Deadline deadline);

  // Stops the program, clears the fault and what is under way. Memories become undefined.
  virtual Status ResetCore(Deadline deadline) = 0;
  // A reset of the whole device by its link, to the state after power-on.
  virtual Status ResetDevice(Deadline deadline) = 0;

  // One run of a program: what it takes and gives.
  struct Job {
    StartMessage start;
    // Encoded, stored at start.program_offset before it runs; empty: they are there.
    std::span<const uint8_t> instructions = {};
    std::span<const std::span<const uint8_t>> inputs = {};
    std::span<const uint8_t> parameters = {};
    std::span<const std::span<uint8_t>> outputs = {};
  };
  // How many can have begun and not finished.
  virtual size_t jobs_in_flight_max() const { return 1; }
  // Hands over what a run needs. Its memory is the device's until Finish or Quiesce.
  // kResourceExhausted if there is no memory or no room for one more: then nothing of it has begun.
  virtual Status Begin(const Job& job, Deadline deadline) = 0;
  // How a program ended: completed, with all outputs received, or faulted.
  struct End {
    Event event;
    uint64_t clock = 0;  // of the device, in cycles since its reset; 0: it does not say
  };
  // Waits for the run of `request_id`, which is the oldest that has begun; runs of
  // kCachingRequest that began before it go with it, unless one of them faults.
  virtual Result<End> Finish(uint32_t request_id, std::span<const std::span<uint8_t>> outputs,
                             Deadline deadline) = 0;
  // After any error: when it returns, the device uses no memory of anybody's. An error says that it
  // has to be opened anew for that.
  virtual Status Quiesce() { return {}; }

  struct Fault {
    FaultCode code = FaultCode::kNone;
    uint32_t instruction = 0;
    uint32_t detail = 0;
  };
  Result<Fault> ReadFault(Deadline deadline);

  // As Chip's.
  virtual Status RegisterMemory(std::span<uint8_t> memory) {
    (void)memory;
    return {};
  }
  virtual void UnregisterMemory(std::span<uint8_t> memory) { (void)memory; }
  // Gets bytes ready that will be sent often, and that do not change until Unpin, which follows if
  // this gives true.
  virtual bool Pin(std::span<const uint8_t> constant) {
    (void)constant;
    return false;
  }
  virtual void Unpin(std::span<const uint8_t> constant) { (void)constant; }

  // Measures what the link carries for the runs that finish; the caller starts and stops it.
  LinkMeter& meter() { return meter_; }

  // The id of caching programs; no request has it.
  static constexpr uint32_t kCachingRequest = 0;

 protected:
  virtual Result<uint32_t> Read32(Register address, Deadline deadline) = 0;
  // kDeviceLost unless it can be what became of `request_id`.
  static Status CheckEvent(const Event& event, uint32_t request_id);

  LinkMeter meter_;
};

}  // namespace atollrt
