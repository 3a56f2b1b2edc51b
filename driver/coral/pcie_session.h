// SPDX-License-Identifier: Apache-2.0
//
// CoralPcieSession: a Coral on PCIe behind a link that was started (pcie_link.h): its core, and the
// queue through which it gets programs (docs/coral.md). What programs are is coral_pcie_chip.h's.
//
// The queue is a ring of descriptors, one for each chunk of instructions; the chip takes them in
// order and fetches for itself what they lead to. A chunk is retired once the chip needs it no
// more; a run is finished once its last instruction has been executed. Both are counted from
// BringUp on.
//
// Errors: kDeviceLost if the chip is gone, reports an error, or says what cannot be; kCorruptModel
// if a program used an address that leads nowhere; the link's. After an error the queue is in
// doubt. One caller at a time.
#pragma once

#include <cstdint>
#include <string>

#include "atoll/status.h"
#include "driver/coral/page_table.h"
#include "driver/coral/pcie_link.h"

namespace atollrt {

// Descriptors that are not retired. One of the ring's stays free.
inline constexpr uint32_t kCoralRingEntries = 256;
inline constexpr uint32_t kCoralChunksMax = kCoralRingEntries - 1;

class CoralPcieSession {
 public:
  // `name` is that of the device, for messages. `link` must outlive the session.
  CoralPcieSession(CoralPcieLink* link, NowFunction now, std::string name);

  // After CoralPcieLink::Start. Nothing is on the chip afterwards.
  Status BringUp(Deadline deadline);
  // Halts everything and takes the queue away; goes on past what fails. Whether the chip has let go
  // of memory.
  bool Close(Deadline deadline);
  // No DMA runs after this has succeeded, nor begins.
  Status Pause(Deadline deadline);

  uint32_t room() const { return kCoralChunksMax - static_cast<uint32_t>(queued_ - retired_); }
  // Into a ring that has room. The chip sees it when the bell is rung.
  void Queue(uint64_t address, uint32_t bytes);
  Status RingBell();
  // What was queued last is the end of a run.
  void EndRun() { ++runs_; }

  // How many chunks, and how many runs, so far.
  uint64_t queued() const { return queued_; }
  uint64_t retired() const { return retired_; }
  uint64_t runs() const { return runs_; }
  uint64_t finished() const { return finished_; }
  // Handles what the chip has to say, or waits for it until `deadline`, but not for long: then it
  // is asked. OK if nothing has happened.
  Status Attend(Deadline deadline);

 private:
  Status SetRunControl(uint64_t value, Deadline deadline);
  Status SelectAllTiles(Deadline deadline);
  Status Await(coral::Register64 address, uint64_t value, const char* what, Deadline deadline);
  Status LookAtQueue();
  Status LookAtRuns();
  Status LookForError();
  Status HandleFatal();

  CoralPcieLink* const link_;
  const NowFunction now_;
  const std::string name_;
  uint64_t queued_ = 0;
  uint64_t rung_ = 0;
  uint64_t retired_ = 0;
  uint64_t runs_ = 0;
  uint64_t finished_ = 0;
  uint16_t count_ = 0;  // of scalar core 0's interrupts, when it was last read
};

}  // namespace atollrt
