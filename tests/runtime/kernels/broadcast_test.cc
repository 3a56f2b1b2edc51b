// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/broadcast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Sizes = std::vector<int32_t>;

TEST(Broadcast, TakesEqualShapesAsOneRun) {
  const Broadcast broadcast = MakeBroadcast(Sizes{2, 3, 4}, Sizes{2, 3, 4});
  EXPECT_TRUE(broadcast.is_elementwise());
  EXPECT_EQ(broadcast.inner, (BroadcastLoop{24, 1, 1}));
}

TEST(Broadcast, TakesScalarsAsOneRun) {
  const Broadcast broadcast = MakeBroadcast(Sizes{2, 3, 4}, Sizes{});
  EXPECT_THAT(broadcast.outer, IsEmpty());
  EXPECT_EQ(broadcast.inner, (BroadcastLoop{24, 1, 0}));
}

TEST(Broadcast, TakesChannelsAsOneRunPerPosition) {
  const Broadcast broadcast = MakeBroadcast(Sizes{4}, Sizes{2, 3, 4});
  EXPECT_THAT(broadcast.outer, ElementsAre(BroadcastLoop{6, 0, 4}));
  EXPECT_EQ(broadcast.inner, (BroadcastLoop{4, 1, 1}));
}

TEST(Broadcast, RepeatsBothOperands) {
  const Broadcast broadcast = MakeBroadcast(Sizes{3, 1}, Sizes{1, 5});
  EXPECT_THAT(broadcast.outer, ElementsAre(BroadcastLoop{3, 1, 0}));
  EXPECT_EQ(broadcast.inner, (BroadcastLoop{5, 0, 1}));
}

TEST(Broadcast, GivesTwoScalarsOneElement) {
  const Broadcast broadcast = MakeBroadcast(Sizes{}, Sizes{1, 1});
  EXPECT_EQ(broadcast.count, 1);
  EXPECT_TRUE(broadcast.is_elementwise());
}

TEST(Broadcast, RunsNothingForEmptyTensors) {
  const Broadcast broadcast = MakeBroadcast(Sizes{2, 0, 3}, Sizes{2, 1, 3});
  ForEachBlock(broadcast, 4, nullptr, nullptr, nullptr, 1,
               [](const uint8_t*, const uint8_t*, int64_t, int64_t) { FAIL(); });
}

// Element `index` of a tensor of shape `target`, in a tensor of shape `source` that repeats.
int64_t SourceIndex(const Sizes& source, const Sizes& target, int64_t index) {
  int64_t result = 0;
  int64_t stride = 1;
  for (size_t i = 0; i < target.size(); ++i) {
    const int64_t coordinate = index % target[target.size() - 1 - i];
    index /= target[target.size() - 1 - i];
    const int64_t size = i < source.size() ? source[source.size() - 1 - i] : 1;
    result += size == 1 ? 0 : coordinate * stride;
    stride *= size;
  }
  return result;
}

TEST(Broadcast, EqualsCoordinateArithmeticOnRandomShapes) {
  Rng rng(TestSeed(3));
  for (int round = 0; round < 500; ++round) {
    const int64_t rank = round % 50 == 0 ? 12 : rng.Int(0, 6);
    Sizes target, shape1, shape2;
    for (int64_t i = 0; i < rank; ++i) {
      const int32_t size = static_cast<int32_t>(rng.Int(1, rank > 6 ? 2 : 4));
      const int64_t which = rng.Int(0, 3);
      target.push_back(size);
      shape1.push_back(which == 1 ? 1 : size);
      shape2.push_back(which == 2 ? 1 : size);
    }
    // Dimensions of size 1 may be left out in front.
    while (!shape1.empty() && shape1.front() == 1) shape1.erase(shape1.begin());
    int64_t count = 1;
    for (const int32_t size : target) count *= size;
    std::vector<int32_t> x1(4096), x2(4096), y(static_cast<size_t>(count) + 1, -1);
    for (int32_t i = 0; i < 4096; ++i) x1[i] = x2[i] = i;
    const Broadcast broadcast = MakeBroadcast(shape1, shape2);
    ASSERT_EQ(broadcast.count, count);
    CombineElements<int32_t, int32_t>(broadcast, reinterpret_cast<const uint8_t*>(x1.data()),
                                      reinterpret_cast<const uint8_t*>(x2.data()),
                                      reinterpret_cast<uint8_t*>(y.data()), nullptr,
                                      [](int32_t a, int32_t b) { return a * 10000 + b; });
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(y[i], SourceIndex(shape1, target, i) * 10000 + SourceIndex(shape2, target, i))
          << "element " << i << " in round " << round;
    }
    ASSERT_EQ(y[count], -1);
  }
}

}  // namespace
}  // namespace atollrt
