// SPDX-License-Identifier: Apache-2.0
#include "driver/device/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kUnit = kResidencyUnitBytes;

TEST(Residency, SegmentsFillMemoryFromTheTopAndProgramsFromTheBottom) {
  Residency residency(10 * kUnit + 5, 1024);
  std::vector<ExecutableId> evicted;
  EXPECT_EQ(residency.Place(1, {256, kUnit + 1, 100}, 0, &evicted), (Placement{0, 8 * kUnit}));
  EXPECT_EQ(residency.Place(2, {128, kUnit, 101}, 0, &evicted), (Placement{256, 7 * kUnit}));
  EXPECT_THAT(evicted, IsEmpty());
  EXPECT_EQ(residency.used_bytes(), 3 * kUnit + 101);
  residency.Remove(1);
  EXPECT_EQ(residency.Place(3, {128, kUnit, 100}, 0, &evicted), (Placement{0, 9 * kUnit}));
  ASSERT_NE(residency.Use(2), nullptr);
  EXPECT_EQ(*residency.Use(2), (Placement{256, 7 * kUnit}));
}

TEST(Residency, TheLeastRecentlyUsedMakesRoom) {
  Residency residency(4 * kUnit, 1 << 20);
  std::vector<ExecutableId> evicted;
  residency.Place(1, {128, kUnit, kUnit}, 0, &evicted);
  residency.Place(2, {128, kUnit, kUnit}, 0, &evicted);
  residency.Place(3, {128, kUnit, kUnit}, 0, &evicted);
  residency.Use(1);
  EXPECT_THAT(evicted, IsEmpty());
  residency.Place(4, {128, kUnit, kUnit}, 0, &evicted);
  EXPECT_THAT(evicted, ElementsAre(2));
  EXPECT_EQ(residency.Use(2), nullptr);
  EXPECT_NE(residency.Use(1), nullptr);
}

TEST(Residency, MoreActivationsEvictTheSegmentsThatLieTooLow) {
  Residency residency(4 * kUnit, 1 << 20);
  std::vector<ExecutableId> evicted;
  residency.Place(1, {128, kUnit, kUnit}, 0, &evicted);
  residency.Place(2, {128, 2 * kUnit, kUnit}, 0, &evicted);
  residency.Place(3, {128, 0, 2 * kUnit}, 0, &evicted);
  EXPECT_THAT(evicted, ElementsAre(1, 2));
}

TEST(Residency, ProgramMemoryIsSharedToo) {
  Residency residency(1 << 20, 512);
  std::vector<ExecutableId> evicted;
  residency.Place(1, {256, 0, 0}, 0, &evicted);
  residency.Place(2, {256, 0, 0}, 0, &evicted);
  EXPECT_EQ(residency.Place(3, {128, 0, 0}, 0, &evicted).program_offset, 0u);
  EXPECT_THAT(evicted, ElementsAre(1));
}

TEST(Residency, SaysWhatCanNeverFit) {
  const Residency residency(2 * kUnit, 512);
  EXPECT_TRUE(residency.CheckFits({512, kUnit, kUnit}).ok());
  EXPECT_EQ(residency.CheckFits({640, 0, 0}).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(residency.CheckFits({128, kUnit, kUnit + 1}).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(residency.CheckFits({128, kUnit + 1, kUnit}).code(), StatusCode::kResourceExhausted);
}

// Whatever comes and goes: nothing overlaps, and an executable that fits gets a place.
TEST(Residency, RandomUseNeverOverlaps) {
  Rng rng(TestSeed(1));
  constexpr uint64_t kMemory = 32 * kUnit;
  constexpr uint64_t kProgram = 4096;
  Residency residency(kMemory, kProgram);
  std::map<ExecutableId, Footprint> all;
  std::map<ExecutableId, Placement> here;
  for (int step = 0; step < 5000; ++step) {
    const auto id = static_cast<ExecutableId>(rng.Int(1, 12));
    if (rng.OneIn(10)) {
      residency.Remove(id);
      here.erase(id);
      all.erase(id);
      continue;
    }
    if (all.count(id) == 0) {
      Footprint footprint;
      do {
        footprint = {static_cast<uint64_t>(rng.Int(1, 20)) * 128,
                     static_cast<uint64_t>(rng.Int(0, 12)) * 1000,
                     static_cast<uint64_t>(rng.Int(0, 20)) * kUnit};
      } while (!residency.CheckFits(footprint).ok());
      all[id] = footprint;
    }
    if (const Placement* placement = residency.Use(id)) {
      ASSERT_EQ(*placement, here.at(id));
    } else {
      ASSERT_EQ(here.count(id), 0u);
      std::vector<ExecutableId> evicted;
      here[id] = residency.Place(id, all[id], 0, &evicted);
      for (const ExecutableId gone : evicted) ASSERT_EQ(here.erase(gone), 1u);
    }
    for (const auto& [a, at] : here) {
      ASSERT_LE(at.parameter_base + all[a].parameter_bytes, kMemory);
      ASSERT_LE(at.program_offset + all[a].program_bytes, kProgram);
      for (const auto& [b, bt] : here) {
        ASSERT_GE(at.parameter_base, all[b].activation_bytes);
        if (a == b) continue;
        ASSERT_TRUE(at.parameter_base + all[a].parameter_bytes <= bt.parameter_base ||
                    bt.parameter_base + all[b].parameter_bytes <= at.parameter_base);
        ASSERT_TRUE(at.program_offset + all[a].program_bytes <= bt.program_offset ||
                    bt.program_offset + all[b].program_bytes <= at.program_offset);
      }
    }
  }
}

// Room for three: 1 and 2 are a set.
TEST(Residency, ASetIsUsedTogetherAndSparesItsOwn) {
  Residency residency(4 * kUnit, 1 << 20);
  std::vector<ExecutableId> evicted;
  residency.Place(1, {128, kUnit, kUnit}, 7, &evicted);
  residency.Place(3, {128, kUnit, kUnit}, 0, &evicted);
  residency.Place(2, {128, kUnit, kUnit}, 7, &evicted);
  EXPECT_THAT(evicted, IsEmpty());
  residency.Use(3);
  residency.Use(1);  // and so 2
  residency.Place(4, {128, kUnit, kUnit}, 0, &evicted);
  EXPECT_THAT(evicted, ElementsAre(3));
  evicted.clear();
  residency.Use(4);  // the set is older than 4 now, but 5 is of it
  residency.Place(5, {128, kUnit, kUnit}, 7, &evicted);
  EXPECT_THAT(evicted, ElementsAre(4));
  evicted.clear();
  residency.Place(6, {128, kUnit, kUnit}, 7, &evicted);  // nobody else is left
  EXPECT_EQ(evicted.size(), 1u);
}

// Against a list, least recently used first, in which the members of a set move together.
TEST(Residency, EvictsInTheOrderOfUse) {
  struct Member {
    ExecutableId id;
    uint32_t set;
  };
  Rng rng(TestSeed(3));
  constexpr size_t kRoom = 6;
  Residency residency(kRoom * kUnit, 1 << 20);
  std::vector<Member> order;
  const auto use = [&](const Member& member) {
    if (member.set != 0) {
      std::stable_partition(order.begin(), order.end(),
                            [&](const Member& other) { return other.set != member.set; });
    }
    std::erase_if(order, [&](const Member& other) { return other.id == member.id; });
    order.push_back(member);
  };
  for (int step = 0; step < 5000; ++step) {
    const ExecutableId id = static_cast<ExecutableId>(rng.Int(1, 16));
    const Member member{id, id % 4};
    const bool is_here = std::any_of(order.begin(), order.end(),
                                     [&](const Member& other) { return other.id == id; });
    ASSERT_EQ(residency.Use(id) != nullptr, is_here);
    if (!is_here) {
      std::vector<ExecutableId> expected, evicted;
      if (order.size() == kRoom) {
        auto victim = std::find_if(order.begin(), order.end(), [&](const Member& other) {
          return member.set == 0 || other.set != member.set;
        });
        if (victim == order.end()) victim = order.begin();
        expected.push_back(victim->id);
        order.erase(victim);
      }
      residency.Place(id, {128, kUnit, 0}, member.set, &evicted);
      ASSERT_EQ(evicted, expected);
    }
    use(member);
  }
}

}  // namespace
}  // namespace atollrt
