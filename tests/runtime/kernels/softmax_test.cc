// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/fixed_point.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

std::vector<int32_t> SoftmaxOf(const std::vector<uint8_t>& row, float scale) {
  const int32_t depth = static_cast<int32_t>(row.size());
  std::vector<uint8_t> output(row.size());
  const SoftmaxParams params = MakeSoftmaxParams(1, depth, ByteType::kUInt8, 1, scale);
  SoftmaxTable table;
  UpdateSoftmaxTable(params, &table);
  Softmax(params, table, ChooseLoops(kBaseline), row.data(), output.data(), nullptr);
  return {output.begin(), output.end()};
}

std::vector<int16_t> WideSoftmaxOf(const std::vector<uint8_t>& row, float scale) {
  const int32_t depth = static_cast<int32_t>(row.size());
  std::vector<int16_t> output(row.size());
  const SoftmaxParams params = MakeSoftmaxParams(1, depth, ByteType::kInt8, 1, scale);
  SoftmaxTable table;
  UpdateSoftmaxTable(params, &table);
  SoftmaxToInt16(params, table, row.data(), output.data(), nullptr);
  return output;
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
      const std::vector<int16_t> wide = WideSoftmaxOf(row, scale);
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
  EXPECT_EQ(WideSoftmaxOf(Equal(8192), 0.1f), std::vector<int16_t>(8192, -32768));
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
