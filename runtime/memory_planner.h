// SPDX-License-Identifier: Apache-2.0
//
// Memory planner: lifetimes of blocks -> offsets in one arena, so that blocks that live at the
// same time do not overlap. Used for tensors of the CPU path and for activations on the device.
// Pure function.
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

// Largest blocks first, each at the lowest gap that is free during its life. `alignment` is a
// power of two.
MemoryPlan PlanMemory(const std::vector<MemoryBlock>& blocks, int64_t alignment);

// What no plan can go below: the largest sum of sizes (rounded up to the alignment) of blocks
// alive at one step.
int64_t MemoryLowerBound(const std::vector<MemoryBlock>& blocks, int64_t alignment);

}  // namespace atollrt
