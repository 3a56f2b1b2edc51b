// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/quantization/fixed_point.h"

#include <algorithm>
#include <bit>
#include <limits>

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

int32_t SaturatingAdd(int32_t a, int32_t b) {
  const int64_t sum = static_cast<int64_t>(a) + b;
  return static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
}

// (a + b) / 2 to nearest, halves away from zero.
int32_t HalfSum(int32_t a, int32_t b) {
  const int64_t sum = static_cast<int64_t>(a) + b;
  return static_cast<int32_t>((sum + (sum >= 0 ? 1 : -1)) / 2);
}

// Numbers of `Raw`, int32_t or int16_t, all kept in int32.
template <typename Raw>
struct FixedPoint {
  static constexpr int kBits = std::numeric_limits<Raw>::digits;  // of a fraction in F0
  static constexpr int32_t kMax = std::numeric_limits<Raw>::max();

  static int32_t Saturate(int64_t x) {
    return static_cast<int32_t>(std::clamp<int64_t>(x, std::numeric_limits<Raw>::min(), kMax));
  }
  static int32_t ShiftLeft(int32_t x, int bits) {
    return Saturate(int64_t{x} * (int64_t{1} << bits));
  }
  static int32_t Multiply(int32_t a, int32_t b) {
    if constexpr (sizeof(Raw) == 4) {
      return Mul(a, b);
    } else {
      return Saturate((a * b + (1 << 14)) >> 15);
    }
  }
  // Of a constant of 32 bits.
  static int32_t Constant(int32_t constant) {
    return RoundingDivideByPowerOfTwo(constant, 31 - kBits);
  }

  // exp on [-1/4, 0), F0 to F0: a polynomial around -1/8.
  static int32_t ExpOnInterval(int32_t a) {
    const int32_t exp_minus_eighth = Constant(1895147668);
    const int32_t third = Constant(715827883);
    const int32_t x = a + (1 << (kBits - 3));
    const int32_t x2 = Multiply(x, x);
    const int32_t x3 = Multiply(x2, x);
    const int32_t x4 = Multiply(x2, x2);
    const int32_t cubic = Multiply(RoundingDivideByPowerOfTwo(x4, 2) + x3, third);
    const int32_t tail = RoundingDivideByPowerOfTwo(cubic + x2, 1);
    return Saturate(int64_t{exp_minus_eighth} + Multiply(exp_minus_eighth, x + tail));
  }

  // exp(a) for a <= 0 in Fk, result in F0.
  static int32_t Exp(int32_t a, int integer_bits) {
    if (a == 0) return kMax;
    const int fraction_bits = kBits - integer_bits;
    const int32_t quarter = 1 << (fraction_bits - 2);
    const int32_t fraction = (a & (quarter - 1)) - quarter;  // in [-1/4, 0)
    int32_t result = ExpOnInterval(ShiftLeft(fraction, integer_bits));
    const int32_t remainder = fraction - a;  // a multiple of 1/4
    // exp(-2^i) for the bits of the remainder.
    constexpr struct {
      int power;
      int32_t factor;
    } kFactors[] = {{-2, 1672461947}, {-1, 1302514674}, {0, 790015084}, {1, 290630308},
                    {2, 39332535},    {3, 720401},      {4, 242}};
    for (const auto& [power, factor] : kFactors) {
      if (integer_bits > power && (remainder & (1 << (fraction_bits + power))) != 0) {
        result = Multiply(result, Constant(factor));
      }
    }
    if (integer_bits > 5 && a < -(32 << fraction_bits)) return 0;
    return result;
  }

  // 2 / (1 + a) for a in [0, 1), F0 to F2: three Newton steps from 48/17 - 32/17 * half.
  static int32_t TwoOverOnePlus(int32_t a) {
    const int32_t half = HalfSum(a, kMax);  // (1 + a) / 2
    int32_t x = Add(Constant(1515870810), Multiply(half, Constant(-1010580540)));
    for (int i = 0; i < 3; ++i) {
      const int32_t error = Subtract(1 << (kBits - 2), Multiply(half, x));
      x = Add(x, ShiftLeft(Multiply(x, error), 2));
    }
    return x;
  }
  // The half of that, F0 to F0.
  static int32_t OneOverOnePlus(int32_t a) { return ShiftLeft(TwoOverOnePlus(a), 1); }
};

using F32 = FixedPoint<int32_t>;
using F16 = FixedPoint<int16_t>;

int32_t MinusMagnitude(int32_t a) { return a < 0 ? a : -a; }

}  // namespace

int32_t FixedPointExp(int32_t a) { return F32::Exp(a, 5); }

Reciprocal FixedPointReciprocal(int32_t x, int32_t integer_bits) {
  const int zeros = LeadingZeros(x);
  const uint32_t normalized = zeros < 32 ? static_cast<uint32_t>(x) << zeros : 0;
  return {F32::OneOverOnePlus(static_cast<int32_t>(normalized - (uint32_t{1} << 31))),
          integer_bits - zeros};
}

int16_t FixedPointLogistic16(int16_t a) {
  if (a == 0) return 1 << 14;
  const int32_t result = F16::OneOverOnePlus(F16::Exp(MinusMagnitude(a), 3));
  return static_cast<int16_t>(a > 0 ? result : INT16_MAX - result);
}

int16_t FixedPointTanh16(int16_t a, int32_t integer_bits) {
  if (a == 0) return 0;
  // (1 - e) / (1 + e) = 2 / (1 + e) - 1 with e = exp(-2|a|), the same bits read as F(k+1).
  const int32_t e = F16::Exp(MinusMagnitude(a), integer_bits + 1);
  const int32_t result = F16::ShiftLeft(F16::TwoOverOnePlus(e) - (1 << 13), 2);
  return static_cast<int16_t>(a < 0 ? -result : result);
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
    return bits >= 0 ? F32::ShiftLeft(value, bits) : RoundingDivideByPowerOfTwo(value, -bits);
  };
  constexpr int kUnit = 31 - kAccumulatorBits;
  constexpr int32_t kQuarter = 1 << (kUnit - 2);

  const int zeros_a = LeadingZeros(x);
  const int32_t r_a = F32::ShiftLeft(Mul(shift(x, zeros_a - 1), kSqrtHalf), 1);
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
  const int32_t tail = Mul(RoundingDivideByPowerOfTwo(numerator, kAccumulatorBits),
                           F32::OneOverOnePlus(denominator));
  return F32::ShiftLeft(Add(Mul(z, kLog2), tail), 1);
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
    const int32_t cube = F32::ShiftLeft(Mul(Mul(y, y), y), 6);
    y = F32::ShiftLeft(Mul(kThreeHalves, y) - Mul(half, cube), 3);
  }
  y = Mul(y, kSqrtHalf);
  if (exponent < 0) return {F32::ShiftLeft(y, -exponent), 0};
  return {y, -exponent};
}

}  // namespace atollrt
