// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_planner.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

bool AliveTogether(const MemoryBlock& a, const MemoryBlock& b) {
  return a.first_use <= b.last_use && b.first_use <= a.last_use;
}

int64_t Rounded(int64_t size, int64_t alignment) {
  return static_cast<int64_t>(
      AlignUp(static_cast<uint64_t>(size), static_cast<uint64_t>(alignment)));
}

}  // namespace

MemoryPlan PlanMemory(const std::vector<MemoryBlock>& blocks, int64_t alignment) {
  MemoryPlan plan;
  plan.offsets.assign(blocks.size(), 0);
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (blocks[a].size != blocks[b].size) return blocks[a].size > blocks[b].size;
    return blocks[a].first_use < blocks[b].first_use;
  });
  std::vector<size_t> placed;  // by ascending offset
  for (const size_t index : order) {
    const MemoryBlock& block = blocks[index];
    if (block.size == 0) continue;
    int64_t offset = 0;
    for (const size_t other : placed) {
      if (!AliveTogether(block, blocks[other])) continue;
      if (offset + block.size <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + Rounded(blocks[other].size, alignment));
    }
    plan.offsets[index] = offset;
    plan.total = std::max(plan.total, offset + Rounded(block.size, alignment));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), index,
                         [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
        index);
  }
  return plan;
}

int64_t MemoryLowerBound(const std::vector<MemoryBlock>& blocks, int64_t alignment) {
  int64_t bound = 0;
  for (const MemoryBlock& at : blocks) {
    int64_t alive = 0;
    for (const MemoryBlock& block : blocks) {
      if (block.first_use <= at.first_use && at.first_use <= block.last_use) {
        alive += Rounded(block.size, alignment);
      }
    }
    bound = std::max(bound, alive);
  }
  return bound;
}

}  // namespace atollrt
