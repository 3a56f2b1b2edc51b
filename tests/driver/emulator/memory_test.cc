// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/memory.h"

#include <gtest/gtest.h>

namespace atollrt {
namespace {

constexpr uint64_t kPage = OnChipMemory::kPageBytes;

TEST(OnChipMemory, ContainsRangesUpToItsEnd) {
  const auto memory = OnChipMemory::Allocate(100);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(memory->Contains(0, 100));
  EXPECT_TRUE(memory->Contains(100, 0));
  EXPECT_FALSE(memory->Contains(1, 100));
  EXPECT_FALSE(memory->Contains(101, 0));
  EXPECT_FALSE(memory->Contains(UINT64_MAX, 2));
  EXPECT_FALSE(memory->Contains(2, UINT64_MAX));
}

TEST(OnChipMemory, KnowsWhatChangedAfterATime) {
  auto memory = OnChipMemory::Allocate(3 * kPage);
  ASSERT_TRUE(memory.ok());
  const uint64_t before = memory->now();
  memory->WriteAt(kPage - 1, 2)[1] = 42;
  EXPECT_EQ(*memory->ReadAt(kPage, 1), 42);
  EXPECT_TRUE(memory->ChangedSince(before, 0, 1));
  EXPECT_TRUE(memory->ChangedSince(before, kPage, 2 * kPage));
  EXPECT_FALSE(memory->ChangedSince(before, 2 * kPage, kPage));
  EXPECT_FALSE(memory->ChangedSince(memory->now(), 0, 3 * kPage));
  memory->WriteAt(3 * kPage - 1, 1);
  EXPECT_TRUE(memory->ChangedSince(before, 2 * kPage, 1));
  EXPECT_FALSE(memory->ChangedSince(before, 2 * kPage, 0));
}

}  // namespace
}  // namespace atollrt
