// SPDX-License-Identifier: Apache-2.0
//
// The functions of the stepped lanes, product by product, against those of the kernels, to the last
// bit: what becomes a byte of them hides the low ones.
#include "driver/emulator/stepped_functions.h"

#include <gtest/gtest.h>

#include "runtime/kernels/quantization/fixed_point.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

// The number of cycles.
template <typename Function, typename... Operands>
int RunToTheEnd(Function& function, Operands... operands) {
  int cycles = 1;
  for (; !function.Step(operands...); ++cycles) {
  }
  return cycles;
}

TEST(SteppedFunctions, ExponentialHasThirteenProducts) {
  Rng rng(TestSeed(51));
  stepped::Exponential function;
  for (int i = 0; i < 200000; ++i) {
    // Of all magnitudes; the multiplier leaves them almost as they are.
    const int64_t difference = -(rng.Int(0, INT32_MAX) >> rng.Int(0, 31));
    const int64_t a = isa::Mbqm(difference, INT32_MAX, 0);
    function.Start(difference);
    ASSERT_EQ(RunToTheEnd(function, INT32_MAX, 0), 13);
    ASSERT_EQ(function.result(), FixedPointExp(static_cast<int32_t>(a))) << a;
  }
}

TEST(SteppedFunctions, ReciprocalHasAShiftAndSevenProducts) {
  Rng rng(TestSeed(52));
  for (int i = 0; i < 200000; ++i) {
    const int32_t sum = static_cast<int32_t>(rng.Int(1, INT32_MAX) >> rng.Int(0, 30));
    if (sum == 0) continue;
    stepped::Reciprocal function(static_cast<uint32_t>(sum));
    ASSERT_EQ(RunToTheEnd(function), 8);
    const Reciprocal expected = FixedPointReciprocal(sum, 12);
    ASSERT_EQ(function.result(), expected.value) << sum;
    ASSERT_EQ(12 - function.leading_zeros(), expected.bits) << sum;
  }
}

TEST(SteppedFunctions, InverseRootHasAShiftAndTwentyOneProducts) {
  Rng rng(TestSeed(53));
  for (int i = 0; i < 200000; ++i) {
    const int32_t n =
        i < 100 ? i - 10 : static_cast<int32_t>(rng.Int(1, INT32_MAX) >> rng.Int(0, 30));
    stepped::InverseRoot function(n);
    ASSERT_EQ(RunToTheEnd(function), 22);
    const Multiplier expected = InverseSquareRoot(n);
    ASSERT_EQ(function.multiplier(), expected.value) << n;
    ASSERT_EQ(function.exponent(), expected.exponent) << n;
  }
}

TEST(SteppedFunctions, GateFunctionsAreThoseOfTheKernelsEverywhere) {
  using Kind = stepped::GateFunction::Kind;
  for (int32_t a = INT16_MIN; a <= INT16_MAX; ++a) {
    stepped::GateFunction logistic(Kind::kLogistic, a, 0);
    ASSERT_EQ(RunToTheEnd(logistic), stepped::GateFunction::kStages);
    ASSERT_EQ(logistic.result(), FixedPointLogistic16(static_cast<int16_t>(a))) << a;
    for (int32_t bits = 0; bits <= 6; ++bits) {
      stepped::GateFunction tanh(Kind::kTanh, a, bits);
      ASSERT_EQ(RunToTheEnd(tanh), stepped::GateFunction::kStages);
      ASSERT_EQ(tanh.result(), FixedPointTanh16(static_cast<int16_t>(a), bits))
          << a << ", " << bits;
    }
  }
}

}  // namespace
}  // namespace atollrt
