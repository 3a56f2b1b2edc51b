// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/memory_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kAlignment = 64;

void ExpectLiveBlocksApart(const std::vector<MemoryBlock>& blocks, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].size == 0) continue;
    EXPECT_EQ(plan.offsets[i] % kAlignment, 0);
    EXPECT_GE(plan.offsets[i], 0);
    EXPECT_LE(plan.offsets[i] + blocks[i].size, plan.total);
    for (size_t j = 0; j < i; ++j) {
      if (blocks[j].size == 0) continue;
      const bool alive_together =
          blocks[i].first_use <= blocks[j].last_use && blocks[j].first_use <= blocks[i].last_use;
      const bool apart = plan.offsets[i] + blocks[i].size <= plan.offsets[j] ||
                         plan.offsets[j] + blocks[j].size <= plan.offsets[i];
      EXPECT_TRUE(!alive_together || apart) << "blocks " << j << " and " << i;
    }
  }
}

TEST(MemoryPlanner, PlansNothingForNoBlocks) {
  const MemoryPlan plan = PlanMemory({}, kAlignment);
  EXPECT_EQ(plan.total, 0);
  EXPECT_TRUE(plan.offsets.empty());
}

TEST(MemoryPlanner, GivesOneBlockTheStart) {
  EXPECT_THAT(PlanMemory({{.size = 100}}, kAlignment).offsets, ElementsAre(0));
}

TEST(MemoryPlanner, ReusesMemoryOfBlocksThatAreGone) {
  const MemoryPlan plan = PlanMemory(
      {{.size = 64, .first_use = 0, .last_use = 1}, {.size = 64, .first_use = 2, .last_use = 3}},
      kAlignment);
  EXPECT_EQ(plan.total, 64);
}

TEST(MemoryPlanner, KeepsBlocksApartThatMeetInOneStep) {
  const MemoryPlan plan = PlanMemory(
      {{.size = 64, .first_use = 0, .last_use = 1}, {.size = 64, .first_use = 1, .last_use = 2}},
      kAlignment);
  EXPECT_EQ(plan.total, 128);
}

TEST(MemoryPlanner, GivesEmptyBlocksNoMemory) {
  EXPECT_EQ(PlanMemory({{.size = 0, .last_use = 9}, {.size = 1, .last_use = 9}}, kAlignment).total,
            64);
}

TEST(MemoryPlanner, FillsGapsBetweenLivingBlocks) {
  const MemoryPlan plan = PlanMemory({{.size = 256, .first_use = 0, .last_use = 1},
                                      {.size = 192, .first_use = 0, .last_use = 3},
                                      {.size = 128, .first_use = 2, .last_use = 3},
                                      {.size = 128, .first_use = 2, .last_use = 3}},
                                     kAlignment);
  EXPECT_EQ(plan.total, 448);
}

TEST(MemoryLowerBound, IsTheLargestSumAliveAtOneStep) {
  EXPECT_EQ(MemoryLowerBound({{.size = 100, .first_use = 0, .last_use = 1},
                              {.size = 10, .first_use = 1, .last_use = 2},
                              {.size = 64, .first_use = 2, .last_use = 2}},
                             kAlignment),
            192);
}

TEST(MemoryPlanner, KeepsLivingBlocksApartOfAnyLifetimes) {
  Rng rng(TestSeed(3));
  for (int i = 0; i < 500 && !testing::Test::HasFailure(); ++i) {
    std::vector<MemoryBlock> blocks(static_cast<size_t>(rng.Int(0, 40)));
    const int32_t steps = rng.Int32(1, 30);
    for (MemoryBlock& block : blocks) {
      block.size = rng.OneIn(8) ? 0 : rng.Int(1, rng.OneIn(4) ? 100'000 : 500);
      block.first_use = rng.Int32(-1, steps);
      block.last_use = rng.Int32(block.first_use, steps);
    }
    const MemoryPlan plan = PlanMemory(blocks, kAlignment);
    ExpectLiveBlocksApart(blocks, plan);
    EXPECT_GE(plan.total, MemoryLowerBound(blocks, kAlignment));
  }
}

// So many that not every pair of them can be looked at.
TEST(MemoryPlanner, PlansVeryManyBlocks) {
  Rng rng(TestSeed(7));
  for (const int32_t longest : {3, 300, 12'000}) {
    SCOPED_TRACE(longest);
    constexpr int32_t kSteps = 12'000;
    std::vector<MemoryBlock> blocks(kSteps);
    for (int32_t i = 0; i < kSteps; ++i) {
      blocks[static_cast<size_t>(i)] = {.size = rng.Int(1, 1000),
                                        .first_use = i,
                                        .last_use = std::min(kSteps, i + rng.Int32(0, longest))};
    }
    const MemoryPlan plan = PlanMemory(blocks, kAlignment);
    const int64_t bound = MemoryLowerBound(blocks, kAlignment);
    EXPECT_GE(plan.total, bound);
    EXPECT_LE(plan.total, bound + bound / 2);
    // Sorted by their beginnings, as the steps are: what lives with one begins before it ends.
    std::vector<std::pair<int64_t, size_t>> alive;  // by offset
    for (size_t i = 0; i < blocks.size() && !testing::Test::HasFailure(); ++i) {
      std::erase_if(alive, [&](const auto& other) {
        return blocks[other.second].last_use < blocks[i].first_use;
      });
      const auto above =
          std::lower_bound(alive.begin(), alive.end(), std::pair(plan.offsets[i], size_t{0}));
      if (above != alive.end()) {
        EXPECT_LE(plan.offsets[i] + blocks[i].size, above->first);
      }
      if (above != alive.begin()) {
        const auto& [offset, below] = *(above - 1);
        EXPECT_LE(offset + blocks[below].size, plan.offsets[i]);
      }
      alive.emplace(above, plan.offsets[i], i);
    }
  }
}

// Inverted bottlenecks with residuals, as in MobileNet v2: expand, filter, project, add.
std::vector<MemoryBlock> BottleneckChain(Rng& rng) {
  std::vector<MemoryBlock> blocks;
  int32_t step = 0;
  int64_t pixels = 112 * 112;
  int64_t channels = 16;
  blocks.push_back({.size = pixels * channels, .first_use = 0, .last_use = 0});
  size_t last = 0;
  const auto add = [&](int64_t size) {
    blocks[last].last_use = std::max(blocks[last].last_use, step);
    blocks.push_back({.size = size, .first_use = step, .last_use = step});
    last = blocks.size() - 1;
    ++step;
  };
  const int64_t count = rng.Int(5, 18);
  for (int64_t i = 0; i < count; ++i) {
    const size_t shortcut = last;
    const bool halves = rng.OneIn(3) && pixels > 64;
    add(pixels * channels * 6);
    if (halves) pixels /= 4;
    add(pixels * channels * 6);
    if (halves) channels = channels * 3 / 2 / 8 * 8;
    add(pixels * channels);
    if (!halves) {
      blocks[shortcut].last_use = step;
      add(pixels * channels);
    }
  }
  return blocks;
}

TEST(MemoryPlanner, ComesCloseToTheLowerBoundOnBottleneckChains) {
  Rng rng(TestSeed(5));
  double sum_of_ratios = 0;
  constexpr int kChains = 200;
  for (int i = 0; i < kChains; ++i) {
    const std::vector<MemoryBlock> blocks = BottleneckChain(rng);
    const MemoryPlan plan = PlanMemory(blocks, kAlignment);
    ExpectLiveBlocksApart(blocks, plan);
    const double ratio =
        static_cast<double>(plan.total) / static_cast<double>(MemoryLowerBound(blocks, kAlignment));
    EXPECT_LE(ratio, 1.05);
    sum_of_ratios += ratio;
  }
  EXPECT_LE(sum_of_ratios / kChains, 1.01);
}

}  // namespace
}  // namespace atollrt
