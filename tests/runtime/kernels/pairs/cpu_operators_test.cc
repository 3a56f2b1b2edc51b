// SPDX-License-Identifier: Apache-2.0
//
// What the conformance cases do not reach: division and its edges, and the int16 sums.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/pairs/pairs.h"

namespace atollrt {
namespace {

Broadcast Elementwise(int32_t count) {
  const int32_t shape[] = {count};
  return MakeBroadcast(shape, shape);
}

PairParams DivideParams(double multiplier) {
  PairParams params;
  params.output = QuantizeMultiplier(multiplier);
  params.clamp = {-128, 127};
  return params;
}

int32_t DivideOne(const PairParams& params, int8_t a, int8_t b) {
  const uint8_t x1 = static_cast<uint8_t>(a);
  const uint8_t x2 = static_cast<uint8_t>(b);
  uint8_t y = 0;
  Divide(params, Elementwise(1), &x1, &x2, &y, nullptr);
  return static_cast<int8_t>(y);
}

TEST(Divide, IsWithinHalfAStepOfTheQuotient) {
  const PairParams params = DivideParams(7.3);
  for (int a = -128; a <= 127; ++a) {
    for (int b = -128; b <= 127; ++b) {
      if (b == 0) continue;
      const double want = std::max(-128.0, std::min(127.0, 7.3 * a / b));
      const int32_t got = DivideOne(params, static_cast<int8_t>(a), static_cast<int8_t>(b));
      ASSERT_NEAR(got, want, 0.5 + 1e-4) << a << " / " << b;
    }
  }
}

TEST(Divide, GivesTheZeroPointForTinyQuotients) {
  PairParams params = DivideParams(1e-9);
  params.output_zero_point = 5;
  EXPECT_EQ(DivideOne(params, 127, 1), 5);
  EXPECT_EQ(DivideOne(params, 0, -128), 5);
}

TEST(Divide, SaturatesQuotientsBeyond32Bits) {
  PairParams params = DivideParams(1e12);
  params.output_zero_point = 5;
  EXPECT_EQ(DivideOne(params, 1, 1), 127);
  EXPECT_EQ(DivideOne(params, 1, -1), -128);
  EXPECT_EQ(DivideOne(params, 0, 3), 5);
}

std::vector<int16_t> Add16Of(const Add16Params& params, const std::vector<int16_t>& a,
                             const std::vector<int16_t>& b) {
  std::vector<int16_t> y(a.size());
  Add16(params, Elementwise(static_cast<int32_t>(a.size())),
        reinterpret_cast<const uint8_t*>(a.data()), reinterpret_cast<const uint8_t*>(b.data()),
        reinterpret_cast<uint8_t*>(y.data()), nullptr);
  return y;
}

TEST(Add16, RoundsTheShiftedOperandAwayFromZeroAndSaturates) {
  Add16Params params;
  params.form = Add16Form::kPowersOfTwo;
  params.shift2 = 1;
  params.clamp = {INT16_MIN, INT16_MAX};
  EXPECT_EQ(Add16Of(params, {10, 10, 32767, -32768}, {3, -3, 2, -32768}),
            (std::vector<int16_t>{12, 8, 32767, -32768}));
  params.sign = -1;
  EXPECT_EQ(Add16Of(params, {10, 10, 32767, -32768}, {3, -3, -2, 2}),
            (std::vector<int16_t>{8, 12, 32767, -32768}));
}

TEST(Add16, BringsBothOperandsToTheOutputsScale) {
  // Scales 0.5, 0.25 and 1: y = x1 / 2 +- x2 / 4.
  Add16Params params;
  params.input1 = QuantizeMultiplier(0.5);
  params.input2 = QuantizeMultiplier(0.25);
  params.output = QuantizeMultiplier(1.0 / 32768);
  params.clamp = {-9000, 9000};
  EXPECT_EQ(Add16Of(params, {100, -7, 32767}, {8, 4, 32767}), (std::vector<int16_t>{52, -3, 9000}));
  params.sign = -1;
  EXPECT_EQ(Add16Of(params, {100, -7, -32768}, {8, 4, 32767}),
            (std::vector<int16_t>{48, -5, -9000}));
}

}  // namespace
}  // namespace atollrt
