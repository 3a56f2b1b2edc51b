// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/quantization/fixed_point.h"
#include "tests/runtime/kernels/random_conv.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

int32_t ResultOf(const SoftmaxParams& p, const uint8_t* output, size_t i) {
  return p.to_int16 ? LoadLittleEndian<int16_t>(output + 2 * i) : ByteValue(output[i], p.type);
}

// What all levels give, each reading and writing nothing but the tensors, which may be the same.
std::vector<int32_t> SoftmaxOf(const SoftmaxParams& p, const std::vector<uint8_t>& input) {
  SoftmaxTable table;
  UpdateSoftmaxTable(p, &table);
  std::vector<int32_t> first;
  for (const CpuFeatures level : AvailableCpuLevels()) {
    for (const bool in_place : {false, true}) {
      if (in_place && p.to_int16) continue;
      for (const auto at : {GuardedBuffer::kStart, GuardedBuffer::kEnd}) {
        GuardedBuffer in(input.size(), at);
        std::copy(input.begin(), input.end(), in.data());
        GuardedBuffer out(input.size() * (p.to_int16 ? 2 : 1), at);
        uint8_t* const output = in_place ? in.data() : out.data();
        Softmax(p, table, ChooseRowLoops(level), in.data(), output, nullptr);
        EXPECT_TRUE(in.Intact() && out.Intact());
        std::vector<int32_t> results;
        for (size_t i = 0; i < input.size(); ++i) results.push_back(ResultOf(p, output, i));
        if (first.empty()) first = results;
        EXPECT_EQ(results, first) << CpuFeaturesName(level) << (in_place ? ", in place" : "");
      }
    }
  }
  return first;
}

std::vector<int32_t> SoftmaxOf(const std::vector<uint8_t>& row, float scale) {
  return SoftmaxOf(
      MakeSoftmaxParams(1, static_cast<int32_t>(row.size()), ByteType::kUInt8, 1, scale), row);
}

std::vector<int32_t> WideSoftmaxOf(const std::vector<uint8_t>& row, float scale) {
  SoftmaxParams params =
      MakeSoftmaxParams(1, static_cast<int32_t>(row.size()), ByteType::kInt8, 1, scale);
  params.to_int16 = true;
  return SoftmaxOf(params, row);
}

// docs/quantization.md §5, element by element.
std::vector<int32_t> ExpectedSoftmax(const SoftmaxParams& p, const std::vector<uint8_t>& input) {
  const int32_t min = p.to_int16 ? INT16_MIN : ByteMin(p.type);
  const int32_t max = p.to_int16 ? INT16_MAX : ByteMax(p.type);
  std::vector<int32_t> results;
  for (size_t row = 0; row < input.size(); row += static_cast<size_t>(p.depth)) {
    const auto value = [&](int32_t i) {
      return ByteValue(input[row + static_cast<size_t>(i)], p.type);
    };
    int32_t greatest = value(0);
    for (int32_t i = 1; i < p.depth; ++i) greatest = std::max(greatest, value(i));
    std::vector<int32_t> exponentials;
    uint32_t sum = 0;
    for (int32_t i = 0; i < p.depth; ++i) {
      const int32_t difference = value(i) - greatest;
      exponentials.push_back(
          difference < p.min_difference
              ? 0
              : FixedPointExp(MultiplyByQuantizedMultiplier(difference, p.multiplier)));
      sum += static_cast<uint32_t>(RoundingDivideByPowerOfTwo(exponentials.back(), 12));
    }
    const Reciprocal reciprocal = FixedPointReciprocal(static_cast<int32_t>(sum), 12);
    const int32_t shift = reciprocal.bits + (p.to_int16 ? 15 : 23);
    for (const int32_t exponential : exponentials) {
      const int32_t product = SaturatingRoundingDoublingHighMul(exponential, reciprocal.value);
      const int32_t steps = shift > 31 ? 0 : RoundingDivideByPowerOfTwo(product, shift);
      results.push_back(Clamp(steps + min, min, max));
    }
  }
  return results;
}

TEST(Softmax, EqualsTheFormula) {
  Rng rng(TestSeed(4));
  for (int round = 0; round < TestCount(300); ++round) {
    const int32_t depth = rng.OneIn(3) ? rng.Int32(200, 800) : rng.Int32(1, 70);
    const float scale = rng.Pick<float>({0.001f, 0.02f, 0.1f, 0.5f, 3.0f});
    SoftmaxParams p = MakeSoftmaxParams(rng.Int(1, 4), depth, RandomType(&rng), 1, scale);
    p.to_int16 = p.type == ByteType::kInt8 && rng.OneIn(2);
    std::vector<uint8_t> input(static_cast<size_t>(p.rows * depth));
    rng.Fill(input);
    // Now and then none of the greatest values.
    const uint8_t mask = rng.Pick<uint8_t>({0xff, 0x3f});
    for (uint8_t& byte : input) byte &= mask;
    ASSERT_EQ(SoftmaxOf(p, input), ExpectedSoftmax(p, input)) << "round " << round;
  }
}

std::vector<uint8_t> Equal(size_t count) { return std::vector<uint8_t>(count, 9); }

TEST(Softmax, IsWithinAStepOfTheProbability) {
  Rng rng(TestSeed(3));
  for (const size_t depth : {1, 2, 10, 255, 511, 600, 1001, 4000}) {
    for (const float scale : {0.0001f, 0.02f, 0.4f}) {
      std::vector<uint8_t> row(depth);
      rng.Fill(row);
      double sum = 0;
      for (const uint8_t x : row) sum += std::exp(static_cast<double>(scale) * x);
      const std::vector<int32_t> got = SoftmaxOf(row, scale);
      const std::vector<int32_t> wide = WideSoftmaxOf(row, scale);
      double wide_sum = 0;
      for (const uint8_t x : row) {
        wide_sum += std::exp(static_cast<double>(scale) * static_cast<int8_t>(x));
      }
      for (size_t i = 0; i < depth; ++i) {
        const double p = std::exp(static_cast<double>(scale) * row[i]) / sum;
        ASSERT_NEAR(got[i], std::fmin(256 * p, 255), 0.501) << depth << " " << scale << " " << i;
        const double q =
            std::exp(static_cast<double>(scale) * static_cast<int8_t>(row[i])) / wide_sum;
        ASSERT_NEAR(wide[i], std::fmin(65536 * q - 32768, 32767), 0.51) << depth << " " << i;
      }
    }
  }
}

// The sum of n equal elements is n * 2^19 in 32 bits.
TEST(Softmax, WrapsSumsOfLongRows) {
  EXPECT_EQ(SoftmaxOf(Equal(511), 0.1f)[0], 1);
  EXPECT_EQ(SoftmaxOf(Equal(513), 0.1f)[0], 0);
  EXPECT_EQ(SoftmaxOf(Equal(4095), 0.1f)[0], 0);
  EXPECT_EQ(SoftmaxOf(Equal(4096), 0.1f)[0], 0) << "2^31";
  EXPECT_EQ(SoftmaxOf(Equal(8193), 0.1f)[0], 255) << "as one element alone";
  EXPECT_EQ(WideSoftmaxOf(Equal(8193), 0.1f)[0], 32767);
}

TEST(Softmax, IsTheMinimumWhereTheSumWrapsToZero) {
  EXPECT_EQ(SoftmaxOf(Equal(8192), 0.1f), std::vector<int32_t>(8192, 0));
  EXPECT_EQ(WideSoftmaxOf(Equal(8192), 0.1f), std::vector<int32_t>(8192, -32768));
}

TEST(FixedPointReciprocal, IsTheReciprocal) {
  for (int64_t x = 1; x <= INT32_MAX; x += 1 + x / 97) {
    const Reciprocal r = FixedPointReciprocal(static_cast<int32_t>(x), 12);
    const double got = std::ldexp(r.value, -31 - r.bits);
    ASSERT_NEAR(got * std::ldexp(static_cast<double>(x), -19), 1, 1e-8) << x;
  }
}

}  // namespace
}  // namespace atollrt
