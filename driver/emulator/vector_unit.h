// SPDX-License-Identifier: Apache-2.0
//
// VectorUnit: what the vector unit and the on-chip DMA do to memory, instruction by instruction:
// docs/isa.md §3 without convolutions and streams. Not thread-safe.
#pragma once

#include "driver/emulator/memory.h"
#include "driver/instruction.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/pairs/pairs.h"

namespace atollrt {

class VectorUnit {
 public:
  // `memory` is borrowed for the life of the unit.
  VectorUnit(OnChipMemory* memory, CpuFeatures features)
      : memory_(*memory), combine_pairs_(ChoosePairs(features)) {}

  // Each instruction must have passed CheckInstruction for these segments.
  void Run(const AddInstruction& instruction, const Segments& segments);
  void Run(const Pool2DInstruction& instruction, const Segments& segments);
  void Run(const MeanInstruction& instruction, const Segments& segments);
  void Run(const TableInstruction& instruction, const Segments& segments);
  void Run(const CopyInstruction& instruction, const Segments& segments);
  void Run(const FillInstruction& instruction, const Segments& segments);

 private:
  OnChipMemory& memory_;
  PairFn combine_pairs_;
};

}  // namespace atollrt
