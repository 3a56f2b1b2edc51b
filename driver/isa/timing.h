// SPDX-License-Identifier: Apache-2.0
//
// The device's time, docs/isa.md §5. Cycles of one instruction are a pure function of its operands
// and of the array's size: the emulator's direct face counts with it (the stepped one counts them
// one by one), the compiler estimates with it. Schedule says when each instruction of a program
// runs. All times are modelled, in device cycles; the time that a host spends on emulation never
// enters. Functions are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"

namespace atollrt {

struct ArraySize {
  uint32_t rows = 0;     // R
  uint32_t columns = 0;  // C
};

// Cycles that `instruction` executes. If an operand is outside the ranges of docs/isa.md §4, so
// that the instruction faults, the number means nothing. Both sizes of the array are at least 1.
uint64_t ExecutionCycles(const Instruction& instruction, ArraySize array);

// Products that filters sum up, those with padding included: of CONV_2D, DEPTHWISE_CONV_2D,
// TRANSPOSE_CONV_2D and LSTM, 0 for all others. The array makes at most R * C in a cycle.
// Operands may have any value; a product beyond 64 bits means nothing.
uint64_t MultiplyAccumulates(const Instruction& instruction);

// Cycles of the sequencer between two instructions, and how many it keeps in flight at most.
inline constexpr uint64_t kIssueCycles = 64;
inline constexpr size_t kInstructionsInFlight = 16;

// What the times depend on beside the program.
struct ScheduleOptions {
  ArraySize array;
  uint64_t clock_hz = 0;
  uint64_t link_bytes_per_second = 0;  // 0: the link takes no time
  // Of what INPUT and PARAMETERS take, the first so many bytes are on the device before the program
  // starts.
  uint64_t bytes_ahead = 0;
};

// Where the time of a program goes. Units overlap, so the parts add up to more than `total`.
struct ScheduleSummary {
  uint64_t total = 0;       // from the start message to the last output byte
  uint64_t link_out = 0;    // inputs on their way to the device
  uint64_t parameters = 0;  // streamed parameters on their way to the device
  uint64_t array = 0;       // the array is busy
  uint64_t vector = 0;      // the vector unit is busy
  uint64_t dma = 0;         // the on-chip DMA is busy
  uint64_t link_in = 0;     // outputs on their way to the host
  uint64_t instructions = 0;
  // Of `total`: when the last instruction is done, and when the last output byte is with the host
  // (0 without any).
  uint64_t computed = 0;
  uint64_t delivered = 0;
};

// When each instruction of a program runs ("Overlap"). The sequencer issues in program order, units
// work side by side, an instruction waits for its unit, for the memory that earlier ones still use,
// and for bytes that are on their way over the link; a chained ADD runs beside its convolution. A
// discrete event model with a handful of operations per instruction: the emulator keeps the
// device's time with it, the compiler compares programs with it.
class Schedule {
 public:
  explicit Schedule(const ScheduleOptions& options) : options_(options) {}

  // When one instruction was issued, when its unit began with it and when it was done; and when the
  // bytes that INPUT and PARAMETERS take, or OUTPUT gives, were on their way over the link (both 0
  // for all others).
  struct Slot {
    Unit unit = Unit::kSequencer;
    uint64_t issued = 0, start = 0, end = 0;
    uint64_t link_start = 0, link_end = 0;
  };

  // The next instruction in program order. If its operands are outside the ranges of docs/isa.md
  // §4, the times from here on mean nothing.
  Slot Add(const Instruction& instruction) {
    return Add(instruction, ExecutionCycles(instruction, options_.array));
  }
  // The same with cycles that somebody else has counted.
  Slot Add(const Instruction& instruction, uint64_t execution_cycles);

  const ScheduleSummary& summary() const { return summary_; }

 private:
  struct InFlight {
    uint64_t start = 0, end = 0;
    MemoryAccesses accesses;
    uint32_t position_bytes = 0;  // of a CONV_2D: its output channels
  };
  uint64_t LinkCycles(uint64_t bytes) const;
  uint64_t ArrivalCycles(uint64_t bytes) const;
  uint64_t AddCycles(uint32_t bytes) const;

  ScheduleOptions options_;
  uint64_t issued_ = 0;                                      // of the last instruction
  std::array<uint64_t, kUnitCount> free_{};                  // when each unit is
  uint64_t bytes_in_ = 0;                                    // taken from the link so far
  std::array<InFlight, kInstructionsInFlight> in_flight_{};  // a ring
  ScheduleSummary summary_;
};

ScheduleSummary SummarizeProgram(std::span<const Instruction> program,
                                 const ScheduleOptions& options);

}  // namespace atollrt
