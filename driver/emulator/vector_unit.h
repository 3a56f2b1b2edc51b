// SPDX-License-Identifier: Apache-2.0
//
// What the vector unit and the on-chip DMA do to memory, instruction by instruction: docs/isa.md
// §3 without convolutions and streams. Every instruction must have passed CheckInstruction for
// these segments. Not thread-safe.
#pragma once

#include "driver/emulator/memory.h"
#include "driver/instruction.h"

namespace atollrt {

void Execute(const AddInstruction& instruction, const Segments& segments, OnChipMemory& memory);
void Execute(const Pool2DInstruction& instruction, const Segments& segments, OnChipMemory& memory);
void Execute(const MeanInstruction& instruction, const Segments& segments, OnChipMemory& memory);
void Execute(const TableInstruction& instruction, const Segments& segments, OnChipMemory& memory);
void Execute(const CopyInstruction& instruction, const Segments& segments, OnChipMemory& memory);
void Execute(const FillInstruction& instruction, const Segments& segments, OnChipMemory& memory);

}  // namespace atollrt
