// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/broadcast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/base/bytes.h"
#include "tests/support/guarded_buffer.h"
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

// Elements of a guarded buffer that follow no pattern.
template <typename T>
class GuardedNumbers : public GuardedBuffer {
 public:
  GuardedNumbers(Rng* rng, const Sizes& shape)
      : GuardedBuffer(Count(shape) * sizeof(T), rng->Pick({kEnd, kStart})) {
    for (size_t i = 0; i < size(); ++i) data()[i] = static_cast<uint8_t>(rng->Next());
  }
  static size_t Count(const Sizes& shape) {
    size_t count = 1;
    for (const int32_t size : shape) count *= static_cast<size_t>(size);
    return count;
  }
  T at(int64_t i) { return LoadLittleEndian<T>(data() + i * static_cast<int64_t>(sizeof(T))); }
};

// Now and then one dimension is so long that its runs take several blocks.
template <typename T>
void TestRandomShapes(uint64_t seed) {
  Rng rng(TestSeed(seed));
  for (int round = 0; round < 300; ++round) {
    const int64_t rank = round % 50 == 0 ? 12 : rng.Int(0, 6);
    const int64_t longest = rank > 0 && round % 5 == 0 ? rng.Int(0, rank - 1) : -1;
    Sizes target, shape1, shape2;
    for (int64_t i = 0; i < rank; ++i) {
      const int32_t size = rng.Int32(1, i == longest ? 5000 : rank > 6 ? 2 : longest >= 0 ? 2 : 4);
      const int64_t which = rng.Int(0, 3);
      target.push_back(size);
      shape1.push_back(which == 1 ? 1 : size);
      shape2.push_back(which == 2 ? 1 : size);
    }
    // Dimensions of size 1 may be left out in front.
    while (!shape1.empty() && shape1.front() == 1) shape1.erase(shape1.begin());
    GuardedNumbers<T> x1(&rng, shape1), x2(&rng, shape2);
    const Broadcast broadcast = MakeBroadcast(shape1, shape2);
    const int64_t count = static_cast<int64_t>(GuardedNumbers<T>::Count(target));
    ASSERT_EQ(broadcast.count, count);
    std::vector<uint64_t> y(static_cast<size_t>(count) + 1, 7);
    const auto combine = [](T a, T b) {
      return static_cast<uint64_t>(a) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(b);
    };
    CombineElements<T, uint64_t>(broadcast, x1.data(), x2.data(),
                                 reinterpret_cast<uint8_t*>(y.data()), nullptr, combine);
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(y[i], combine(x1.at(SourceIndex(shape1, target, i)),
                              x2.at(SourceIndex(shape2, target, i))))
          << "element " << i << " in round " << round;
    }
    ASSERT_EQ(y[count], 7u);
  }
}

TEST(Broadcast, EqualsCoordinateArithmeticOnBytes) { TestRandomShapes<uint8_t>(3); }
TEST(Broadcast, EqualsCoordinateArithmeticOnInt16) { TestRandomShapes<uint16_t>(4); }
TEST(Broadcast, EqualsCoordinateArithmeticOnInt32) { TestRandomShapes<uint32_t>(5); }
TEST(Broadcast, EqualsCoordinateArithmeticOnInt64) { TestRandomShapes<uint64_t>(6); }

}  // namespace
}  // namespace atollrt
