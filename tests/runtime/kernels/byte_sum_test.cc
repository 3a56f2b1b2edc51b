// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/kernels/reduce.h"
#include "tests/runtime/kernels/random_conv.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

// What all levels give, each reading and writing nothing but the tensors.
std::vector<uint8_t> SumOf(const ByteSumParams& p, std::span<const ReduceLoop> nest, size_t outputs,
                           const std::vector<uint8_t>& input) {
  std::vector<uint8_t> first;
  for (const CpuFeatures level : AvailableCpuLevels()) {
    for (const auto at : {GuardedBuffer::kStart, GuardedBuffer::kEnd}) {
      GuardedBuffer in(input.size(), at);
      std::copy(input.begin(), input.end(), in.data());
      GuardedBuffer out(outputs, at);
      ByteSum(p, nest, ChooseRowLoops(level), in.data(), out.data());
      EXPECT_TRUE(out.Intact());
      const std::vector<uint8_t> output(out.data(), out.data() + out.size());
      if (first.empty()) first = output;
      EXPECT_EQ(output, first) << CpuFeaturesName(level);
    }
  }
  return first;
}

std::vector<uint8_t> SumOf(const ByteSumParams& p, const ReducePlan& plan,
                           const std::vector<uint8_t>& input) {
  return SumOf(p, plan.loops, static_cast<size_t>(plan.outputs), input);
}

TEST(ByteSum, DividesByTheMultiplier) {
  const ByteSumParams p{
      .input_zero_point = 1, .multiplier = QuantizeMultiplier(0.25), .output_zero_point = 3};
  // (5+5+9+9 - 4)/4 + 3 and (-1-1-1-1 - 4)/4 + 3.
  EXPECT_EQ(SumOf(p, MakeReducePlan({4, 2}, {true, false}), {5, 0xFF, 5, 0xFF, 9, 0xFF, 9, 0xFF}),
            (std::vector<uint8_t>{9, 1}));
}

TEST(ByteSum, EqualsTheFormulaForAnyAxes) {
  Rng rng(TestSeed(20240612));
  for (int round = 0; round < TestCount(500); ++round) {
    const size_t rank = static_cast<size_t>(rng.Int(0, 7));
    std::vector<int32_t> sizes(rank);
    std::vector<bool> reduce(rank);
    int64_t total = 1;
    for (size_t i = 0; i < rank; ++i) {
      sizes[i] = rng.Int32(1, 4);
      reduce[i] = rng.OneIn(2);
      // Now and then some vectors, or several blocks of outputs or cells.
      if (total < 100 && rng.OneIn(4)) sizes[i] = rng.Int32(5, 80);
      if (total < 100 && rng.OneIn(8)) sizes[i] = rng.Int32(250, 520);
      total *= sizes[i];
    }
    const ReducePlan plan = MakeReducePlan(sizes, reduce);
    ByteSumParams p;
    p.type = rng.OneIn(2) ? ByteType::kUInt8 : ByteType::kInt8;
    p.input_zero_point = rng.Int32(ByteMin(p.type), ByteMax(p.type));
    p.output_zero_point = rng.Int32(ByteMin(p.type), ByteMax(p.type));
    p.multiplier = QuantizeMultiplier(4 * rng.Real() / static_cast<double>(plan.reduced));
    p.clamp = {ByteMin(p.type) + rng.Int32(0, 20), ByteMax(p.type) - rng.Int32(0, 20)};
    std::vector<uint8_t> input(static_cast<size_t>(total));
    rng.Fill(input);
    std::vector<int32_t> sums(static_cast<size_t>(plan.outputs));
    for (int64_t i = 0; i < total; ++i) {
      int64_t rest = i, place = 0, stride = 1;
      for (size_t axis = rank; axis-- > 0;) {
        if (!reduce[axis]) {
          place += rest % sizes[axis] * stride;
          stride *= sizes[axis];
        }
        rest /= sizes[axis];
      }
      sums[static_cast<size_t>(place)] +=
          ByteValue(input[static_cast<size_t>(i)], p.type) - p.input_zero_point;
    }
    std::vector<uint8_t> expected;
    for (const int32_t sum : sums) {
      const int32_t value = MultiplyByQuantizedMultiplier(sum, p.multiplier) + p.output_zero_point;
      expected.push_back(static_cast<uint8_t>(Clamp(value, p.clamp.min, p.clamp.max)));
    }
    ASSERT_EQ(SumOf(p, plan, input), expected) << "round " << round;
  }
}

TEST(ByteSum, PassesOverLoopsOfOneStep) {
  const ByteSumParams p{.multiplier = QuantizeMultiplier(1)};
  const ReduceLoop loops[] = {{1, 6, 0}, {1, 6, 2}, {3, 2, 0}, {1, 2, 2}, {2, 1, 1}, {1, 1, 0}};
  EXPECT_EQ(SumOf(p, loops, 2, {1, 2, 10, 20, 30, 40}), (std::vector<uint8_t>{41, 62}));
}

TEST(ByteSum, KeepsNeighbouringLoopsApart) {
  // [2, 2, 3, 2, 2] with its second, fourth and last axis summed.
  const ByteSumParams p{.multiplier = QuantizeMultiplier(1)};
  const ReduceLoop loops[] = {{2, 24, 3}, {2, 12, 0}, {3, 4, 1}, {2, 2, 0}, {2, 1, 0}};
  std::vector<uint8_t> input(48);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<uint8_t>(i % 7);
  std::vector<uint8_t> expected(6);
  for (size_t i = 0; i < input.size(); ++i) expected[i / 24 * 3 + i / 4 % 3] += input[i];
  EXPECT_EQ(SumOf(p, loops, 6, input), expected);
}

TEST(ByteSum, LetsSumsWrap) {
  // The difference of sum and zero points does not fit 32 bits.
  const ByteSumParams p{.input_zero_point = 127, .multiplier = {1 << 30, 1}};
  constexpr int32_t kCount = 1 << 24;
  const std::vector<uint8_t> input(2 * size_t{kCount}, 0x80);
  // -255 * 2^24 = 2^24 modulo 2^32.
  for (const bool is_row : {true, false}) {
    const ReducePlan plan = is_row ? MakeReducePlan({2, kCount}, {false, true})
                                   : MakeReducePlan({kCount, 2}, {true, false});
    EXPECT_EQ(SumOf(p, plan, input), std::vector<uint8_t>(2, 127));
  }
}

TEST(ByteSum, LetsTheZeroPointWrap) {
  // A sum of 2^25 - 1 becomes 2^31 - 65.
  const ByteSumParams p{.type = ByteType::kUInt8,
                        .multiplier = {INT32_MAX, 6},
                        .output_zero_point = 127,
                        .clamp = {3, 250}};
  std::vector<uint8_t> input(131586, 255);
  input.push_back(1);
  const int32_t count = static_cast<int32_t>(input.size());
  EXPECT_EQ(SumOf(p, MakeReducePlan({count}, {true}), input), std::vector<uint8_t>{3});
}

}  // namespace
}  // namespace atollrt
