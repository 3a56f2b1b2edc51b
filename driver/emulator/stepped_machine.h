// SPDX-License-Identifier: Apache-2.0
//
// SteppedMachine: the emulator's stepped face. Array, vector unit and DMA of docs/isa.md §5, cycle
// by cycle: slow, for small shapes, and the oracle of the direct face (DirectArray, VectorUnit), of
// the closed forms and of the order of driver/isa/timing.h. It shares no arithmetic with them.
//
// Belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "driver/emulator/stop_signal.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"

namespace atollrt {

struct SteppedMachineOptions {
  uint32_t rows = 1, columns = 1;  // R and C of docs/isa.md, both at least 1
  uint64_t clock_hz = 0;
  uint64_t link_bytes_per_second = 0;  // 0: the link takes no time
};

// Of a program, in cycles from its start message on.
struct SteppedTimes {
  uint64_t total = 0;      // the end of END or of the last output byte's journey
  uint64_t computed = 0;   // the end of END
  uint64_t delivered = 0;  // that of the last output byte's journey; 0 without any
  // How long the link is busy for it.
  uint64_t link_out = 0, link_in = 0;
};

class SteppedMachine {
 public:
  // What infeed, outfeed and DMA move in a cycle.
  static constexpr size_t kBlockBytes = 64;

  virtual ~SteppedMachine() = default;

  // Runs an instruction of array, vector unit or DMA on `memory`, the on-chip memory, and returns
  // the cycles that it took, issue not included. Precondition: the instruction and its channel
  // records have passed CheckInstruction and CheckChannelRecords for these segments and this
  // memory. Writes what AccessesOf (driver/isa/memory_access.h) says and nothing else.
  virtual uint64_t Run(const Instruction& instruction, const Segments& segments,
                       std::span<uint8_t> memory) = 0;
  // The program's time: of the instructions since StartProgram, in order and with the cycles that
  // they took, as docs/isa.md §5, "Overlap", has them run side by side. The last one is END.
  virtual void StartProgram() = 0;
  virtual void AddToProgram(const Instruction& instruction, uint64_t cycles) = 0;
  // With the first bytes_ahead that it takes from the link on the device before it starts. May be
  // asked again until the next StartProgram.
  virtual SteppedTimes ProgramTimes(uint64_t bytes_ahead) = 0;
  // A run in progress ends early when it says so; then its cycles and what it wrote mean nothing.
  virtual void set_stop(const StopSignal& stop) = 0;
};

// Whether this program has one: libatoll-core has not.
bool HasSteppedMachine();
// Never nullptr if there is one.
std::unique_ptr<SteppedMachine> MakeSteppedMachine(const SteppedMachineOptions& options);

}  // namespace atollrt
