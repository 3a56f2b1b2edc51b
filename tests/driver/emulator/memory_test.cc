// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

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

TEST(OnChipMemory, HoldsNothingToRelyOnAfterAReset) {
  constexpr uint64_t kBytes = (64 << 20) + 3 * kPage;
  auto memory = OnChipMemory::Allocate(kBytes);
  ASSERT_TRUE(memory.ok());
  const auto count = [&](uint8_t value, uint64_t address, uint64_t size_bytes) {
    const uint8_t* bytes = memory->ReadAt(address, size_bytes);
    return std::count(bytes, bytes + size_bytes, value);
  };
  *memory->WriteAt(200'000, 1) = 1;
  memory->bytes()[kBytes - 1] = 2;
  EXPECT_EQ(count(0xA5, 100'000, 200'000), 199'999);
  EXPECT_EQ(count(0, 64 << 20, 3 * kPage), 3 * kPage - 1);
  const uint64_t before = memory->now();
  memory->Undefine();
  EXPECT_TRUE(memory->ChangedSince(before, 200'000, 1));
  EXPECT_TRUE(memory->ChangedSince(before, kBytes - 1, 1));
  EXPECT_EQ(count(0xA5, 0, 64 << 20), 64 << 20);
  EXPECT_EQ(count(0, 64 << 20, 3 * kPage), 3 * kPage);
}

// Of a memory that is read and written here and there only these places are taken from the host.
TEST(OnChipMemory, TakesWhatIsUsed) {
  const auto resident = [](const uint8_t* bytes, size_t size_bytes) {
    std::vector<unsigned char> pages(size_bytes / static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    EXPECT_EQ(mincore(const_cast<uint8_t*>(bytes), size_bytes, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](auto page) { return page % 2 != 0; });
  };
  constexpr uint64_t kBytes = 8 << 20;
  auto memory = OnChipMemory::Allocate(kBytes);
  ASSERT_TRUE(memory.ok());
  const uint8_t* const start = memory->ReadAt(0, 0);
  EXPECT_EQ(resident(start, kBytes), 0);
  memory->ReadAt(5 << 20, 1);
  memory->WriteAt(kBytes - 1, 1);
  EXPECT_GT(resident(start, kBytes), 1);
  EXPECT_LE(resident(start, kBytes), kBytes / kPage / 2);  // huge pages have 2 MiB
  memory->Undefine();
  EXPECT_EQ(resident(start, kBytes), 0);
}

}  // namespace
}  // namespace atollrt
