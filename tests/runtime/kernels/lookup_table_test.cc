// SPDX-License-Identifier: Apache-2.0
//
// All 256 entries of tables against the functions that they stand for.
#include "runtime/kernels/lookup_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace atollrt {
namespace {

// Expects every entry within `steps` of function(real value), clamped to the type.
template <typename Function>
void ExpectNear(const LookupTable& table, const ByteFormat& input, const ByteFormat& output,
                double steps, Function function) {
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t value = ByteValue(static_cast<uint8_t>(byte), input.type);
    const double x = static_cast<double>(input.scale) * (value - input.zero_point);
    const double want =
        std::clamp<double>(function(x) / static_cast<double>(output.scale) + output.zero_point,
                           ByteMin(output.type), ByteMax(output.type));
    EXPECT_NEAR(ByteValue(table[byte], output.type), want, steps) << "x = " << x;
  }
}

constexpr ByteFormat kSigned{ByteType::kInt8, 0.05f, -20};
constexpr ByteFormat kUnsigned{ByteType::kUInt8, 0.04f, 100};

TEST(ExpTable, IsTheRoundedExponential) {
  const ByteFormat output{ByteType::kInt8, 0.5f, -128};
  ExpectNear(MakeExpTable(kSigned, output), kSigned, output, 0.5001,
             [](double x) { return std::exp(x); });
}

TEST(ExpTable, SaturatesBeyondFloat) {
  const LookupTable table = MakeExpTable({ByteType::kUInt8, 10.0f, 0}, {ByteType::kUInt8, 1.0f, 0});
  EXPECT_EQ(table[0], 1);
  EXPECT_EQ(table[1], 255);
  EXPECT_EQ(table[255], 255) << "exp(2550) is infinite";
}

// Rounding twice costs up to three quarters of a step.
TEST(LeakyReluTable, HasTwoSlopes) {
  for (const double alpha : {0.1, -0.7, 1.6}) {
    const double real = alpha * 0.04 / 0.05;
    const LeakyReluMultipliers multipliers{.positive = QuantizeMultiplier(0.04 / 0.05),
                                           .negative = QuantizeMultiplier(std::abs(real)),
                                           .sign = alpha < 0 ? -1 : 1};
    const ByteFormat output{ByteType::kUInt8, 0.05f, 90};
    ExpectNear(MakeLeakyReluTable(kUnsigned, output, multipliers), kUnsigned, output, 0.75,
               [&](double x) { return x >= 0 ? x : alpha * x; });
  }
}

TEST(HardSwishTable, IsTheCurveWithinAStep) {
  const auto hard_swish = [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; };
  // Gates that shift left, hardly at all, and right.
  for (const float scale : {0.1f, 0.012f, 0.001f}) {
    const ByteFormat input{ByteType::kInt8, scale, 10};
    const ByteFormat output{ByteType::kInt8, scale, -5};
    ExpectNear(MakeHardSwishTable(input, output), input, output, 1, hard_swish);
  }
}

TEST(RsqrtTable, IsTheInverseRootAndTheMaximumAtZero) {
  const ByteFormat output{ByteType::kInt8, 0.02f, -100};
  const LookupTable table = MakeRsqrtTable(kSigned, output);
  ExpectNear(table, kSigned, output, 0.51,
             [](double x) { return x <= 0 ? 1e9 : 1 / std::sqrt(x); });
}

TEST(RsqrtTable, FlushesTinyResults) {
  const LookupTable table =
      MakeRsqrtTable({ByteType::kInt8, 1e30f, 0}, {ByteType::kInt8, 1e20f, 7});
  EXPECT_EQ(table[100], 7);
}

}  // namespace
}  // namespace atollrt
