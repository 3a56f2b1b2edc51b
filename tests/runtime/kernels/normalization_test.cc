// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/normalization.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/kernels/quantization/fixed_point.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

std::vector<uint8_t> RandomRow(Rng& rng, int64_t depth) {
  std::vector<uint8_t> row(static_cast<size_t>(depth));
  for (uint8_t& byte : row) byte = static_cast<uint8_t>(rng.Int(0, 255));
  return row;
}

TEST(FixedPointLog, IsTheLogarithm) {
  for (int64_t raw = 1 << 19; raw <= INT32_MAX; raw += raw / 97) {
    const double want = std::log(static_cast<double>(raw) / (1 << 19));
    const double got = FixedPointLog(static_cast<int32_t>(raw)) / static_cast<double>(1 << 26);
    ASSERT_NEAR(got, want, 2e-6) << raw;
  }
  FixedPointLog(INT32_MAX);
}

TEST(InverseSquareRoot, IsTheRoot) {
  for (int64_t x = 2; x <= INT32_MAX; x += 1 + x / 97) {
    const Multiplier m = InverseSquareRoot(static_cast<int32_t>(x));
    const double got = std::ldexp(m.value, m.exponent - 31);
    ASSERT_NEAR(got * std::sqrt(static_cast<double>(x)), 1, 2e-6) << x;
    ASSERT_LE(m.exponent, 0);
  }
  EXPECT_EQ(InverseSquareRoot(0), (Multiplier{INT32_MAX, 0}));
  EXPECT_EQ(InverseSquareRoot(1), (Multiplier{INT32_MAX, 0}));
  InverseSquareRoot(INT32_MAX);
}

TEST(LogSoftmax, IsWithinAStepOfTheLogarithm) {
  Rng rng(TestSeed(5));
  for (const float scale : {0.003f, 0.1f, 0.9f}) {
    const int32_t depth = 50;
    const std::vector<uint8_t> input = RandomRow(rng, depth);
    std::vector<uint8_t> output(input.size());
    LogSoftmax(MakeLogSoftmaxParams(1, depth, ByteType::kUInt8, scale), input.data(),
               output.data());
    double sum = 0;
    for (const uint8_t x : input) sum += std::exp(static_cast<double>(scale) * x);
    for (int32_t i = 0; i < depth; ++i) {
      const double log = static_cast<double>(scale) * input[i] - std::log(sum);
      EXPECT_NEAR(output[i], std::clamp(255 + 16 * log, 0.0, 255.0), 1) << i;
    }
  }
}

// Element 0 of a row of `depth` equal ones.
int8_t LogSoftmaxOfEqual(int32_t depth) {
  const std::vector<uint8_t> input(static_cast<size_t>(depth), 7);
  std::vector<uint8_t> output(input.size());
  LogSoftmax(MakeLogSoftmaxParams(1, depth, ByteType::kInt8, 0.1f), input.data(), output.data());
  return static_cast<int8_t>(output[0]);
}

TEST(LogSoftmax, WrapsSumsOfLongRows) {
  EXPECT_EQ(LogSoftmaxOfEqual(4095), 127 - std::lround(16 * std::log(4095)));
  EXPECT_EQ(LogSoftmaxOfEqual(8193), LogSoftmaxOfEqual(1)) << "8192 * 2^19 is 0 modulo 2^32";
}

// What the results are is TensorFlow Lite's secret, but there are some.
TEST(FixedPointLog, IsDefinedForAllNumbers) {
  for (int64_t raw = INT32_MIN; raw <= 1 << 20; raw += raw < -4 || raw > 4 ? 65537 : 1) {
    FixedPointLog(static_cast<int32_t>(raw));
  }
  LogSoftmaxOfEqual(4096);
  LogSoftmaxOfEqual(8192);
}

TEST(L2Normalization, IsWithinAStepOfTheUnitVector) {
  Rng rng(TestSeed(6));
  for (const ByteType type : {ByteType::kInt8, ByteType::kUInt8}) {
    const L2NormalizationParams params{
        .rows = 4, .depth = 9, .type = type, .input_zero_point = type == ByteType::kInt8 ? 3 : 140};
    const std::vector<uint8_t> input = RandomRow(rng, params.rows * params.depth);
    std::vector<uint8_t> output(input.size());
    L2Normalization(params, input.data(), output.data());
    for (size_t i = 0; i < input.size(); ++i) {
      const size_t row = i / 9 * 9;
      double sum = 0;
      for (size_t k = row; k < row + 9; ++k) {
        sum += std::pow(ByteValue(input[k], type) - params.input_zero_point, 2);
      }
      const double want =
          128 * (ByteValue(input[i], type) - params.input_zero_point) / std::sqrt(sum);
      const int32_t zero_point = type == ByteType::kInt8 ? 0 : 128;
      EXPECT_NEAR(ByteValue(output[i], type) - zero_point, std::min(want, 127.0), 0.51) << i;
    }
  }
}

TEST(L2Normalization, WrapsSumsOfLongRows) {
  // 2^17 * 2^15 is 0 modulo 2^32, so only the last element counts.
  const L2NormalizationParams params{.rows = 1, .depth = (1 << 18) + 1, .input_zero_point = 0};
  std::vector<uint8_t> input(static_cast<size_t>(params.depth), 128);  // -128
  input.back() = 100;
  std::vector<uint8_t> output(input.size());
  L2Normalization(params, input.data(), output.data());
  EXPECT_EQ(output.back(), 127);
}

TEST(L2Normalization, LeavesZeroAtZero) {
  const L2NormalizationParams params{.rows = 1, .depth = 3, .input_zero_point = -5};
  const std::vector<uint8_t> input(3, static_cast<uint8_t>(-5));
  std::vector<uint8_t> output(3, 99);
  L2Normalization(params, input.data(), output.data());
  EXPECT_EQ(output, (std::vector<uint8_t>{0, 0, 0}));
}

}  // namespace
}  // namespace atollrt
