// SPDX-License-Identifier: Apache-2.0
//
// The stepped face of the emulator's vector unit: the lanes of docs/isa.md §5, "How the vector unit
// computes", each doing one operation in a cycle. It is the oracle for the bytes and the cycles of
// the instructions of the vector unit, written from that page alone; it shares no arithmetic with
// the kernels and knows no closed form: cycles are counted as they pass.
//
// A SteppedVectorUnit belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "driver/emulator/stepped_lanes.h"
#include "driver/emulator/stop_signal.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"

namespace atollrt {

class SteppedVectorUnit {
 public:
  // `lanes` is at least 1: C of docs/isa.md.
  explicit SteppedVectorUnit(uint32_t lanes);

  // Runs one instruction of the vector unit on `memory`, the on-chip memory, and returns the cycles
  // that it took, issue not included. Precondition: the instruction passes the checks of
  // docs/isa.md §4 with these segments and this memory. Writes the output tensor and nothing else.
  uint64_t Run(const Instruction& instruction, const Segments& segments, std::span<uint8_t> memory);

  // Filters and poolings in progress end early when it says so; the others take no time to speak
  // of.
  void set_stop(const StopSignal& stop) { stop_ = stop; }

  // The lanes, as the latest cycle left them; their observer is for tests.
  stepped::Lanes& lanes() { return lanes_; }

 private:
  stepped::Lanes lanes_;
  StopSignal stop_;
};

}  // namespace atollrt
