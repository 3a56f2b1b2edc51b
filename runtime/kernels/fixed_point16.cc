// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/fixed_point16.h"

#include "runtime/kernels/quantization.h"

namespace atollrt {
namespace {

// All values below are of 16 bits, kept in int32.

// (a * b + 2^14) >> 15, saturated for a = b = -2^15.
int32_t Mul(int32_t a, int32_t b) {
  if (a == INT16_MIN && b == INT16_MIN) return INT16_MAX;
  return (a * b + (1 << 14)) >> 15;
}

int32_t SaturatingLeftShift(int32_t x, int32_t bits) { return SaturateToInt16(x * (1 << bits)); }

// The 16-bit form of a constant of 32 bits.
int32_t Narrow(int32_t constant) { return RoundingDivideByPowerOfTwo(constant, 16); }

// exp on [-1/4, 0), F0 to F0: a polynomial around -1/8.
int32_t ExpOnInterval(int32_t a) {
  const int32_t exp_minus_eighth = Narrow(1895147668);
  const int32_t third = Narrow(715827883);
  const int32_t x = a + (1 << 12);
  const int32_t x2 = Mul(x, x);
  const int32_t x3 = Mul(x2, x);
  const int32_t x4 = Mul(x2, x2);
  const int32_t tail =
      RoundingDivideByPowerOfTwo(Mul(RoundingDivideByPowerOfTwo(x4, 2) + x3, third) + x2, 1);
  return SaturateToInt16(exp_minus_eighth + Mul(exp_minus_eighth, x + tail));
}

// exp(a) for a <= 0 in Fk, result in F0.
int32_t Exp(int32_t a, int32_t integer_bits) {
  if (a == 0) return INT16_MAX;
  const int32_t fraction_bits = 15 - integer_bits;
  const int32_t quarter = 1 << (fraction_bits - 2);
  const int32_t fraction = (a & (quarter - 1)) - quarter;  // in [-1/4, 0)
  int32_t result = ExpOnInterval(SaturatingLeftShift(fraction, integer_bits));
  const int32_t remainder = fraction - a;  // a multiple of 1/4
  // exp(-2^i) for the bits of the remainder.
  constexpr struct {
    int32_t power;
    int32_t factor;
  } kFactors[] = {{-2, 1672461947}, {-1, 1302514674}, {0, 790015084}, {1, 290630308},
                  {2, 39332535},    {3, 720401},      {4, 242}};
  for (const auto& [power, factor] : kFactors) {
    if (integer_bits > power && (remainder & (1 << (fraction_bits + power))) != 0) {
      result = Mul(result, Narrow(factor));
    }
  }
  if (integer_bits > 5 && a < -(32 << fraction_bits)) return 0;
  return result;
}

// What three Newton steps from 48/17 - 32/17 * (1 + a) / 2 give, a in [0, 1): 2 / (1 + a) in F2.
int32_t TwoOverOnePlus(int32_t a) {
  const int32_t half = (a + INT16_MAX + 1) / 2;
  int32_t x = Narrow(1515870810) + Mul(half, Narrow(-1010580540));
  for (int i = 0; i < 3; ++i) {
    const int32_t error = (1 << 13) - Mul(half, x);
    x += SaturatingLeftShift(Mul(x, error), 2);
  }
  return x;
}

int32_t MinusMagnitude(int32_t a) { return a < 0 ? a : -a; }

}  // namespace

int16_t FixedPointLogistic16(int16_t a) {
  if (a == 0) return 1 << 14;
  // 1 / (1 + exp(-|a|)): half of the above, in F1, as F0.
  const int32_t result = SaturatingLeftShift(TwoOverOnePlus(Exp(MinusMagnitude(a), 3)), 1);
  return static_cast<int16_t>(a > 0 ? result : INT16_MAX - result);
}

int16_t FixedPointTanh16(int16_t a, int32_t integer_bits) {
  if (a == 0) return 0;
  // (1 - e) / (1 + e) = 2 / (1 + e) - 1 with e = exp(-2|a|), the same bits read as F(k+1).
  const int32_t e = Exp(MinusMagnitude(a), integer_bits + 1);
  const int32_t result = SaturatingLeftShift(TwoOverOnePlus(e) - (1 << 13), 2);
  return static_cast<int16_t>(a < 0 ? -result : result);
}

}  // namespace atollrt
