// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/reduce.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

TEST(ReducePlan, MergesAxesThatAreTreatedAlike) {
  const ReducePlan plan = MakeReducePlan({2, 3, 1, 5, 7}, {false, false, false, true, true});
  ASSERT_EQ(plan.loops.size(), 2u);
  EXPECT_EQ(plan.loops[0].count, 6);
  EXPECT_EQ(plan.loops[0].in_stride, 35);
  EXPECT_EQ(plan.loops[0].out_stride, 1);
  EXPECT_EQ(plan.loops[1].count, 35);
  EXPECT_EQ(plan.loops[1].in_stride, 1);
  EXPECT_EQ(plan.loops[1].out_stride, 0);
  EXPECT_EQ(plan.outputs, 6);
  EXPECT_EQ(plan.reduced, 35);
}

TEST(Reduce, EqualsTheDefinitionOnRandomShapes) {
  Rng rng(TestSeed(20240918));
  for (int round = 0; round < 300; ++round) {
    const size_t rank = static_cast<size_t>(rng.Int(0, 5));
    std::vector<int32_t> sizes(rank);
    std::vector<bool> reduce(rank);
    int64_t total = 1;
    for (size_t i = 0; i < rank; ++i) {
      sizes[i] = rng.Int32(1, 5);
      reduce[i] = rng.Int(0, 1) != 0;
      total *= sizes[i];
    }
    std::vector<uint8_t> input(static_cast<size_t>(total) * 2);
    rng.Fill(input);
    const ReducePlan plan = MakeReducePlan(sizes, reduce);
    std::vector<int64_t> expected(static_cast<size_t>(plan.outputs), 7);
    for (int64_t i = 0; i < total; ++i) {
      // The coordinates of element i, and those that are kept as an index of the output.
      int64_t rest = i;
      int64_t place = 0;
      int64_t stride = 1;
      for (size_t axis = rank; axis-- > 0;) {
        if (!reduce[axis]) {
          place += rest % sizes[axis] * stride;
          stride *= sizes[axis];
        }
        rest /= sizes[axis];
      }
      expected[static_cast<size_t>(place)] += LoadLittleEndian<int16_t>(input.data() + 2 * i);
    }
    std::vector<int64_t> sums(expected.size());
    Reduce<int16_t>(plan, input.data(), int64_t{7}, sums.data(),
                    [](int64_t a, int64_t x) { return a + x; });
    ASSERT_EQ(sums, expected) << "round " << round;
  }
}

TEST(ReduceExtreme, TakesTheGreatestAndTheLeast) {
  const ReducePlan plan = MakeReducePlan({2, 3, 2}, {false, true, false});
  const std::vector<uint8_t> input{5, 1, 0x80, 4, 9, 0xFF, 0, 0, 200, 0, 0, 1};
  std::vector<int8_t> output(4);
  ReduceExtreme(Extreme::kMax, plan.loops, plan.outputs, input.data(), output.data());
  EXPECT_EQ(output, (std::vector<int8_t>{9, 4, 0, 1}));
  ReduceExtreme(Extreme::kMin, plan.loops, plan.outputs, input.data(), output.data());
  EXPECT_EQ(output, (std::vector<int8_t>{-128, -1, -56, 0}));
}

}  // namespace
}  // namespace atollrt
