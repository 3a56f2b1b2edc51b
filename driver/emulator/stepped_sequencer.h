// SPDX-License-Identifier: Apache-2.0
//
// SteppedSequencer: the sequencer, the queues of the units and the link of docs/isa.md §5,
// "Overlap", as a machine with a state that goes from one event to the next. It is the oracle of
// Schedule (driver/isa/timing.h), which has the same list as maxima over earlier times: it is
// written from that page and shares nothing with it but the table of operands.
//
// Belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "driver/emulator/stepped_machine.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"

namespace atollrt {

class SteppedSequencer {
 public:
  explicit SteppedSequencer(const SteppedMachineOptions& options) : options_(options) {}

  // Forgets what it has.
  void Clear() { program_.clear(); }
  // The next instruction, and the cycles of its execution as its unit has counted them.
  void Add(const Instruction& instruction, uint64_t cycles);
  // Runs the program, whose last instruction is END. Of what it takes from the link the first so
  // many bytes are on the device before it starts.
  SteppedTimes Run(uint64_t bytes_ahead = 0);

 private:
  enum class State : uint8_t { kWaiting, kIssued, kRunning, kDone };
  struct Entry {
    Unit unit = Unit::kSequencer;
    bool is_chained = false;  // to the one before
    uint64_t cycles = 0;
    uint64_t link_bytes = 0;     // INPUT, PARAMETERS, OUTPUT
    uint64_t last_position = 0;  // CONV_2D: what a chained ADD takes for it
    MemoryAccesses accesses;
    State state = State::kWaiting;
    uint64_t arrives = 0;  // infeed: when its last byte is there
    uint64_t ends = 0;     // once it runs
  };

  uint64_t Journey(uint64_t bytes) const;
  bool MayStart(size_t index) const;
  void Start(size_t index);
  // What can happen in this cycle; false if nothing did.
  bool FinishOne();
  bool IssueOne();
  bool StartOne();
  bool SendOne();
  // The next cycle in which something can.
  uint64_t NextEvent() const;

  const SteppedMachineOptions options_;
  std::vector<Entry> program_;
  // What belongs to one run.
  uint64_t now_ = 0;
  size_t first_running_ = 0;  // all before it are done
  size_t next_issue_ = 0;
  uint64_t may_issue_ = 0;                 // when the sequencer has fetched the next
  std::deque<size_t> queues_[kUnitCount];  // issued, not started
  std::optional<size_t> running_[kUnitCount];
  std::deque<uint64_t> outgoing_;  // bytes of OUTPUTs that have ended
  uint64_t link_is_free_ = 0;      // towards the host
};

}  // namespace atollrt
