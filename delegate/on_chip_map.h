// SPDX-License-Identifier: Apache-2.0
//
// On-chip map: the memory plan, which is made in steps, told in instructions of the program, for
// reports: from which instruction to which one a block is reserved. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/plan/memory_planner.h"

namespace atollrt {

// Which part of the plan an instruction carries out.
struct InstructionOrigin {
  int32_t step = -1;  // -1: takes inputs, before all steps; behind the last one: gives outputs
  int32_t band = 0;   // of a step that runs in bands of rows
  bool fetches_parameters = false;  // PARAMETERS: runs before its step does
  bool moves_rows = false;          // of an input or output, for the band: computes no node
};

// Instructions [first, last].
struct InstructionRange {
  int32_t first = 0, last = 0;
  bool operator==(const InstructionRange&) const = default;
};

// The life of a tensor or of scratch: one range, or, for what is used anew for each of `bands`
// bands, up to one for each, in ascending order. None if its steps have no instructions. Looks at
// the instructions of `around` only, beginning from both ends: outside of it there are none that
// belong to it.
std::vector<InstructionRange> InstructionsOf(const MemoryBlock& block, int32_t bands,
                                             std::span<const InstructionOrigin> origins,
                                             InstructionRange around);

// The life of the streamed parameters of `step`, from the first instruction that fetches them on.
std::optional<InstructionRange> InstructionsOfParameters(const MemoryBlock& block, int32_t step,
                                                         std::span<const InstructionOrigin> origins,
                                                         InstructionRange around);

}  // namespace atollrt
