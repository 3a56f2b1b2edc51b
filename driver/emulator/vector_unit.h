// SPDX-License-Identifier: Apache-2.0
//
// VectorUnit: what the vector unit and the on-chip DMA do to memory, instruction by instruction:
// docs/isa.md §3 without convolutions and streams. Not thread-safe.
#pragma once

#include "driver/emulator/memory.h"
#include "driver/instruction.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/strided_copy.h"

namespace atollrt {

class VectorUnit {
 public:
  // `memory` is borrowed for the life of the unit.
  VectorUnit(OnChipMemory* memory, CpuFeatures features);

  // Each instruction must have passed CheckInstruction for these segments.
  void Run(const AddInstruction& instruction, const Segments& segments);
  void Run(const Pool2DInstruction& instruction, const Segments& segments);
  void Run(const MeanInstruction& instruction, const Segments& segments);
  void Run(const TableInstruction& instruction, const Segments& segments);
  void Run(const CopyInstruction& instruction, const Segments& segments);
  void Run(const FillInstruction& instruction, const Segments& segments);
  void Run(const MultiplyInstruction& instruction, const Segments& segments);
  void Run(const MaximumInstruction& instruction, const Segments& segments);
  void Run(const MinimumInstruction& instruction, const Segments& segments);
  void Run(const PreluInstruction& instruction, const Segments& segments);

 private:
  template <PairInstruction T>
  void RunPair(const T& instruction, const PairParams& params, const Segments& segments);

  OnChipMemory& memory_;
  PairFn combine_pairs_;
  // The loops of the instruction that runs; kept so that a run allocates nothing.
  Broadcast broadcast_;
  StridedCopy copy_;
};

}  // namespace atollrt
