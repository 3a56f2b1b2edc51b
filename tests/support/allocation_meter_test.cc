// SPDX-License-Identifier: Apache-2.0
#include "tests/support/allocation_meter.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/buffer.h"

namespace atollrt {
namespace {

constexpr int64_t kSize = 100'000;
// What an allocator may add to a block.
constexpr int64_t kMargin = 8192;

void ExpectAbout(int64_t bytes, int64_t want) {
  EXPECT_GE(bytes, want);
  EXPECT_LE(bytes, want + kMargin);
}

// Not for the compiler to remove.
void* volatile kept = nullptr;

TEST(AllocationMeter, CountsWhatIsHeldAtOnce) {
  const AllocationMeter meter;
  for (int i = 0; i < 3; ++i) {
    const std::vector<uint8_t> block(kSize);
    kept = const_cast<uint8_t*>(block.data());
  }
  EXPECT_EQ(meter.count(), 3);
  ExpectAbout(meter.total_bytes(), 3 * kSize);
  ExpectAbout(meter.peak_bytes(), kSize);
}

TEST(AllocationMeter, CountsEveryWayToAllocate) {
  {
    const AllocationMeter meter;
    kept = std::malloc(kSize);
    kept = std::realloc(kept, 2 * kSize);
    std::free(kept);
    EXPECT_EQ(meter.count(), 2);
    EXPECT_GE(meter.peak_bytes(), 2 * kSize);
    EXPECT_LE(meter.peak_bytes(), 3 * kSize + kMargin);
  }
  const AllocationMeter meter;
  kept = std::calloc(kSize, 1);
  std::free(kept);
  EXPECT_EQ(meter.count(), 1);
#ifndef __SANITIZE_THREAD__  // which does not tell of aligned blocks
  {
    const auto buffer = Buffer::Allocate(kSize);
    ASSERT_TRUE(buffer.ok());
  }
  EXPECT_EQ(meter.count(), 2);
#endif
  std::thread([] { kept = std::make_unique<uint8_t[]>(kSize).get(); }).join();
  EXPECT_GE(meter.count(), 2);
  ExpectAbout(meter.peak_bytes(), kSize);
}

TEST(AllocationMeter, CountsBuffersThatComeFromTheKernel) {
  constexpr int64_t kLarge = int64_t{8} << 20;
  const AllocationMeter meter;
  for (int i = 0; i < 3; ++i) {
    auto first = Buffer::Allocate(kLarge);
    auto second = Buffer::Allocate(kLarge);
    ASSERT_TRUE(first.ok() && second.ok());
    Buffer moved = *std::move(first);
    EXPECT_EQ(moved.size(), kLarge);
  }
  EXPECT_EQ(meter.count(), 6);
  EXPECT_EQ(meter.total_bytes(), 6 * kLarge);
  EXPECT_EQ(meter.peak_bytes(), 2 * kLarge);
}

TEST(AllocationMeter, InnerMetersLeaveThePeakToOuterOnes) {
  const AllocationMeter outer;
  kept = std::vector<uint8_t>(kSize).data();
  {
    const AllocationMeter inner;
    kept = std::vector<uint8_t>(kSize / 10).data();
    ExpectAbout(inner.peak_bytes(), kSize / 10);
  }
  ExpectAbout(outer.peak_bytes(), kSize);
}

TEST(MemoryLimit, EndsTheProcessThatExceedsIt) {
  {
    const MemoryLimit limit(2 * kSize);
    kept = std::vector<uint8_t>(kSize).data();
    kept = std::vector<uint8_t>(kSize).data();
  }
  const auto exceed = [] {
    const MemoryLimit limit(kSize);
    const MemoryLimit wider(100 * kSize);
    kept = std::vector<uint8_t>(2 * kSize).data();
  };
  EXPECT_DEATH(exceed(), "beyond the limit of memory");
}

}  // namespace
}  // namespace atollrt
