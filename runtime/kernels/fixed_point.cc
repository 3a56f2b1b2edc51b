// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/fixed_point.h"

#include "runtime/kernels/quantization.h"

namespace atollrt {
namespace {

constexpr auto Mul = SaturatingRoundingDoublingHighMul;

int32_t SaturatingLeftShift(int32_t x, int bits) {
  const int64_t shifted = static_cast<int64_t>(x) * (int64_t{1} << bits);
  if (shifted > INT32_MAX) return INT32_MAX;
  if (shifted < INT32_MIN) return INT32_MIN;
  return static_cast<int32_t>(shifted);
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
  const int32_t half =
      static_cast<int32_t>((static_cast<int64_t>(a) + INT32_MAX + 1) / 2);  // (1 + a) / 2
  constexpr int32_t k48Over17 = 1515870810;
  constexpr int32_t kMinus32Over17 = -1010580540;
  int32_t x = k48Over17 + Mul(half, kMinus32Over17);  // F2
  for (int i = 0; i < 3; ++i) {
    const int32_t error = (1 << 29) - Mul(half, x);
    x += SaturatingLeftShift(Mul(x, error), 2);
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
  const int zeros = __builtin_clz(static_cast<uint32_t>(x));
  const int32_t fraction =
      static_cast<int32_t>((static_cast<uint32_t>(x) << zeros) - (uint32_t{1} << 31));
  return {OneOverOnePlus(fraction), integer_bits - zeros};
}

}  // namespace atollrt
