// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/quantization/quantization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace atollrt {
namespace {

TEST(QuantizeMultiplier, SplitsIntoMantissaAndExponent) {
  EXPECT_EQ(QuantizeMultiplier(0), (Multiplier{0, 0}));
  EXPECT_EQ(QuantizeMultiplier(1.0), (Multiplier{1 << 30, 1}));
  EXPECT_EQ(QuantizeMultiplier(0.5), (Multiplier{1 << 30, 0}));
  EXPECT_EQ(QuantizeMultiplier(0.75), (Multiplier{1610612736, 0}));
}

TEST(QuantizeMultiplier, CarriesIntoTheExponentWhenTheMantissaRoundsUp) {
  const double just_below_one = std::nextafter(1.0, 0.0);
  EXPECT_EQ(QuantizeMultiplier(just_below_one), (Multiplier{1 << 30, 1}));
}

TEST(QuantizeMultiplier, KeepsExponentsWithinWhatADeviceHolds) {
  EXPECT_EQ(QuantizeMultiplier(0x1p126).exponent, 127);
  EXPECT_EQ(QuantizeMultiplier(0x1p127).exponent, 96);
  EXPECT_EQ(QuantizeMultiplier(0x1p1000).exponent, 1001 - 28 * 32);
  const Multiplier raw{1 << 30, 1001};
  EXPECT_EQ(MultiplyByQuantizedMultiplier(-77, QuantizeMultiplier(0x1p1000)),
            MultiplyByQuantizedMultiplier(-77, raw));
}

TEST(QuantizeMultiplier, FlushesTinyAndNonFiniteNumbersToZero) {
  EXPECT_EQ(QuantizeMultiplier(std::ldexp(1.0, -33)), (Multiplier{0, 0}));
  EXPECT_EQ(QuantizeMultiplier(std::numeric_limits<double>::infinity()), (Multiplier{0, 0}));
  EXPECT_EQ(QuantizeMultiplier(std::numeric_limits<double>::quiet_NaN()), (Multiplier{0, 0}));
}

TEST(SaturatingRoundingDoublingHighMul, SaturatesAtTheOneOverflow) {
  EXPECT_EQ(SaturatingRoundingDoublingHighMul(INT32_MIN, INT32_MIN), INT32_MAX);
  EXPECT_EQ(SaturatingRoundingDoublingHighMul(INT32_MIN, INT32_MAX), -INT32_MAX);
  EXPECT_EQ(SaturatingRoundingDoublingHighMul(1 << 30, 1), 1);
  EXPECT_EQ(SaturatingRoundingDoublingHighMul(1 << 30, -1), 0);  // halves go up
}

TEST(RoundingDivideByPowerOfTwo, TakesHalvesAwayFromZero) {
  EXPECT_EQ(RoundingDivideByPowerOfTwo(3, 1), 2);
  EXPECT_EQ(RoundingDivideByPowerOfTwo(-3, 1), -2);
  EXPECT_EQ(RoundingDivideByPowerOfTwo(5, 2), 1);
  EXPECT_EQ(RoundingDivideByPowerOfTwo(-5, 2), -1);
  EXPECT_EQ(RoundingDivideByPowerOfTwo(6, 2), 2);
  EXPECT_EQ(RoundingDivideByPowerOfTwo(-6, 2), -2);
  EXPECT_EQ(RoundingDivideByPowerOfTwo(INT32_MIN, 31), -1);
  EXPECT_EQ(RoundingDivideByPowerOfTwo(INT32_MAX, 31), 1);
  EXPECT_EQ(RoundingDivideByPowerOfTwo(7, 0), 7);
}

TEST(MultiplyByQuantizedMultiplier, RoundsTwice) {
  // A single rounding of 2.4999... would give 2; rounding to 32 bits first gives 5/2, then 3.
  const Multiplier half{1 << 30, 0};
  EXPECT_EQ(MultiplyByQuantizedMultiplier(5, half), 3);
  EXPECT_EQ(MultiplyByQuantizedMultiplier(-5, half), -2);
  EXPECT_EQ(MultiplyByQuantizedMultiplier(100, QuantizeMultiplier(8.0)), 800);
}

TEST(MultiplyByQuantizedMultiplier, TakesHugeShiftsModulo32) {
  const Multiplier huge{1 << 30, 102};
  EXPECT_EQ(MultiplyByQuantizedMultiplier(3, huge),
            SaturatingRoundingDoublingHighMul(3 << (102 & 31), 1 << 30));
}

TEST(MultiplyByQuantizedMultiplier64, RoundsOnceAndHalvesUp) {
  const Multiplier half{1 << 30, 0};
  EXPECT_EQ(MultiplyByQuantizedMultiplier64(5, half), 3);
  EXPECT_EQ(MultiplyByQuantizedMultiplier64(-5, half), -2);
  EXPECT_EQ(MultiplyByQuantizedMultiplier64(int64_t{1} << 40, {1 << 30, -20}), 1 << 19);
  // The 16-bit multiplier does not round up to 2^15.
  EXPECT_EQ(MultiplyByQuantizedMultiplier64(1 << 15, {INT32_MAX, 0}), 32767);
}

TEST(Requantize, DoubleModeRoundsHalvesAwayFromZeroAndClamps) {
  const OutputChannel half{.bias = 1, .multiplier = {}, .scale = 0.5};
  EXPECT_EQ(Requantize(4, RequantizeMode::kDouble, half, 0, {-128, 127}), 3);
  EXPECT_EQ(Requantize(-6, RequantizeMode::kDouble, half, 0, {-128, 127}), -3);
  const OutputChannel huge{.bias = 0, .multiplier = {}, .scale = 1e30};
  EXPECT_EQ(Requantize(1, RequantizeMode::kDouble, huge, 5, {-128, 127}), 127);
  EXPECT_EQ(Requantize(-1, RequantizeMode::kDouble, huge, 5, {-128, 127}), -128);
}

}  // namespace
}  // namespace atollrt
