// SPDX-License-Identifier: Apache-2.0
//
// Where the tensors of a graph lie in the interpreter's arena. Each has a block of memory from the
// step that writes it to the last one that reads it; but tensors share one where that saves memory
// or a copy:
//   - the output of an element-wise operator takes over an input that nobody reads afterwards;
//   - what an operator only moves (RESHAPE, SPLIT, slices) stays where it is, as a part of its
//     input;
//   - what an operator only puts together (CONCATENATION, PACK) is written there in the first
//     place.
// Steps of the last two kinds have nothing to do. The bytes of a tensor are right from the step
// that writes it to the last one that reads it, as without sharing.
//
// Inputs of the graph and variable tensors keep their memory for the whole of every invocation, and
// so do the model's variables; outputs keep theirs until the next one. Pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/graph.h"

namespace atollrt {

// What one step of the interpreter needs, in the order in which they run.
struct StepMemory {
  const Node* node = nullptr;       // on the CPU; nullptr: a partition, which shares nothing
  std::span<const int32_t> inputs;  // tensors; -1: absent
  std::span<const int32_t> outputs;
  int64_t scratch_bytes = 0;
};

struct ArenaLayout {
  // For each tensor in the arena, one that stands for its block: the same for all in that block.
  std::vector<int32_t> blocks;
  std::vector<int64_t>
      tensors;  // offsets; -1: constants, empty tensors and those inside partitions
  std::vector<int64_t> scratch;    // an offset per step
  std::vector<int64_t> variables;  // an offset each
  std::vector<bool> is_done;       // per step: nothing is left to do
  int64_t total_bytes = 0;
  int64_t lower_bound_bytes = 0;  // what no plan of these blocks can go below
};

// All tensors that steps name are of `graph`, which has been loaded. Offsets of blocks are
// multiples of Buffer::kAlignment, those of tensors inside of another one are what they must be.
// With `keeps_all_tensors`, every tensor has a block of its own for as long as inputs have theirs.
ArenaLayout LayOutArena(const Graph& graph, std::span<const StepMemory> steps,
                        std::span<const Variable> variables, bool keeps_all_tensors = false);

}  // namespace atollrt
