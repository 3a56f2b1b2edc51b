// SPDX-License-Identifier: Apache-2.0
//
// Memory planner: lifetimes of blocks -> offsets in one arena, so that blocks that live at the
// same time do not overlap. Used for tensors of the CPU path and for activations on the device.
// Pure function.
//
// Blocks are placed one after the other, each into a gap that is free during its life; what decides
// is the order. A few orders are tried, and from the best one on, pairs of blocks around the top of
// the arena change places. The search ends when it reaches the lower bound, which it does for most
// networks with the first order, or when its budget is spent: a number of steps, not a time, so
// that a model has the same plan everywhere.
#pragma once

#include <cstdint>
#include <vector>

namespace atollrt {

struct MemoryBlock {
  int64_t size = 0;       // bytes; 0 is allowed
  int32_t first_use = 0;  // first step, inclusive
  int32_t last_use = 0;   // last step, inclusive
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one per block, multiples of the alignment
  int64_t total = 0;             // bytes of the arena
};

// `alignment` is a power of two. Less than a millisecond for 200 blocks.
MemoryPlan PlanMemory(const std::vector<MemoryBlock>& blocks, int64_t alignment);

// What no plan can go below: the largest sum of sizes (rounded up to the alignment) of blocks
// alive at one step.
int64_t MemoryLowerBound(const std::vector<MemoryBlock>& blocks, int64_t alignment);

}  // namespace atollrt
