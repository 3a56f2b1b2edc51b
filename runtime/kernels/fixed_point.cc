// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/fixed_point.h"

#include <algorithm>
#include <bit>

namespace atollrt {
namespace {

constexpr auto Mul = SaturatingRoundingDoublingHighMul;

int32_t Add(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

int32_t Subtract(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
}

// 32 for 0.
int LeadingZeros(int32_t x) { return std::countl_zero(static_cast<uint32_t>(x)); }

int32_t SaturatingLeftShift(int32_t x, int bits) {
  const int64_t shifted = static_cast<int64_t>(x) * (int64_t{1} << bits);
  if (shifted > INT32_MAX) return INT32_MAX;
  if (shifted < INT32_MIN) return INT32_MIN;
  return static_cast<int32_t>(shifted);
}

int32_t SaturatingAdd(int32_t a, int32_t b) {
  const int64_t sum = static_cast<int64_t>(a) + b;
  return static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
}

// (a + b) / 2 to nearest, halves away from zero.
int32_t HalfSum(int32_t a, int32_t b) {
  const int64_t sum = static_cast<int64_t>(a) + b;
  return static_cast<int32_t>((sum + (sum >= 0 ? 1 : -1)) / 2);
}

// exp on [-1/4, 0), F0 to F0: a polynomial around -1/8.
int32_t ExpOnInterval(int32_t a) {
  constexpr int32_t kExpMinusEighth = 1895147668;
  constexpr int32_t kThird = 715827883;
  const int32_t x = a + (1 << 28);
  const int32_t x2 = Mul(x, x);
  const int32_t x3 = Mul(x2, x);
  const int32_t x4 = Mul(x2, x2);
  const int32_t tail =
      RoundingDivideByPowerOfTwo(Mul(RoundingDivideByPowerOfTwo(x4, 2) + x3, kThird) + x2, 1);
  return kExpMinusEighth + Mul(kExpMinusEighth, x + tail);
}

// 1 / (1 + a) for a in [0, 1), F0 to F0: three Newton steps from 48/17 - 32/17 * half.
int32_t OneOverOnePlus(int32_t a) {
  const int32_t half = HalfSum(a, INT32_MAX);  // (1 + a) / 2
  constexpr int32_t k48Over17 = 1515870810;
  constexpr int32_t kMinus32Over17 = -1010580540;
  int32_t x = Add(k48Over17, Mul(half, kMinus32Over17));  // F2
  for (int i = 0; i < 3; ++i) {
    const int32_t error = Subtract(1 << 29, Mul(half, x));
    x = Add(x, SaturatingLeftShift(Mul(x, error), 2));
  }
  return SaturatingLeftShift(x, 1);
}

}  // namespace

int32_t FixedPointExp(int32_t a) {
  if (a == 0) return INT32_MAX;
  constexpr int kIntegerBits = 5;
  constexpr int32_t kQuarter = 1 << (31 - kIntegerBits - 2);
  const int32_t fraction = (a & (kQuarter - 1)) - kQuarter;  // in [-1/4, 0)
  int32_t result = ExpOnInterval(SaturatingLeftShift(fraction, kIntegerBits));
  const int32_t remainder = fraction - a;  // a multiple of 1/4
  // exp(-2^i) for the bits of the remainder.
  constexpr struct {
    int power;
    int32_t factor;
  } kFactors[] = {{-2, 1672461947}, {-1, 1302514674}, {0, 790015084}, {1, 290630308},
                  {2, 39332535},    {3, 720401},      {4, 242}};
  for (const auto& [power, factor] : kFactors) {
    if ((remainder & (1 << (31 - kIntegerBits + power))) != 0) result = Mul(result, factor);
  }
  return result;
}

Reciprocal FixedPointReciprocal(int32_t x, int32_t integer_bits) {
  const int zeros = LeadingZeros(x);
  const uint32_t normalized = zeros < 32 ? static_cast<uint32_t>(x) << zeros : 0;
  return {OneOverOnePlus(static_cast<int32_t>(normalized - (uint32_t{1} << 31))),
          integer_bits - zeros};
}

int32_t FixedPointLog(int32_t x) {
  // log(x) = z log(2) + log(r / sqrt(1/2)), with x = 2^z * r and r within a factor of 2^(1/4) of
  // sqrt(1/2): the power of two, or the square root of one, that leaves the smaller r.
  constexpr int kInputBits = 12;
  constexpr int kAccumulatorBits = 6;  // one more than the result's
  constexpr int32_t kSqrtHalf = 1518500250;
  constexpr int32_t kSqrtSqrtHalf = 1805811301;
  constexpr int32_t kLog2 = 1488522236;
  const auto shift = [](int32_t value, int bits) {
    return bits >= 0 ? SaturatingLeftShift(value, bits) : RoundingDivideByPowerOfTwo(value, -bits);
  };
  constexpr int kUnit = 31 - kAccumulatorBits;
  constexpr int32_t kQuarter = 1 << (kUnit - 2);

  const int zeros_a = LeadingZeros(x);
  const int32_t r_a = SaturatingLeftShift(Mul(shift(x, zeros_a - 1), kSqrtHalf), 1);
  const int32_t z_a = SaturatingAdd(shift(kInputBits - zeros_a, kUnit), kQuarter);
  const int zeros_b = LeadingZeros(Mul(x, kSqrtHalf)) - 1;
  const int32_t r_b = shift(x, zeros_b);
  const int32_t z_b = SaturatingAdd(shift(kInputBits - zeros_b, kUnit), -kQuarter);
  const int32_t r = std::min(r_a, r_b);
  const int32_t z = std::max(z_a, z_b);

  // A rational function of q = 2 (r - 2^(-1/4)).
  const int32_t p = HalfSum(r, kSqrtSqrtHalf);
  const int32_t difference = Subtract(r, kSqrtSqrtHalf);
  const int32_t q = Add(difference, difference);
  const int32_t q2 = Mul(q, q);
  const int32_t numerator = Add(Mul(q, r), Mul(Mul(q, q2), 117049297));
  const int32_t factor = Add(Add(1057819769, q), Mul(127690142, q2));
  const int32_t denominator = Add(Mul(p, factor), Mul(638450708, q));
  const int32_t tail =
      Mul(RoundingDivideByPowerOfTwo(numerator, kAccumulatorBits), OneOverOnePlus(denominator));
  return SaturatingLeftShift(Add(Mul(z, kLog2), tail), 1);
}

Multiplier InverseSquareRoot(int32_t x) {
  if (x <= 1) return {INT32_MAX, 0};
  int32_t exponent = 11;  // of the result, downwards
  for (; x >= 1 << 29; x /= 4) ++exponent;
  const int pairs = (__builtin_clz(static_cast<uint32_t>(x)) - 1) / 2 - 1;
  exponent -= pairs;
  x <<= 2 * pairs;
  // Newton's iteration y = y (3 - x y^2) / 2, all in F3.
  constexpr int32_t kThreeHalves = (1 << 28) + (1 << 27);
  constexpr int32_t kSqrtHalf = 1518500250;
  const int32_t half = RoundingDivideByPowerOfTwo(x >> 1, 1);
  int32_t y = 1 << 28;
  for (int i = 0; i < 5; ++i) {
    const int32_t cube = SaturatingLeftShift(Mul(Mul(y, y), y), 6);
    y = SaturatingLeftShift(Mul(kThreeHalves, y) - Mul(half, cube), 3);
  }
  y = Mul(y, kSqrtHalf);
  if (exponent < 0) return {SaturatingLeftShift(y, -exponent), 0};
  return {y, -exponent};
}

}  // namespace atollrt
