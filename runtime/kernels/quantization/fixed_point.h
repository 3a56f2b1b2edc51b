// SPDX-License-Identifier: Apache-2.0
//
// Fixed-point numbers as gemmlowp and TensorFlow Lite use them: "Fk" is an int32 whose real value
// is raw / 2^(31-k), or an int16 whose real value is raw / 2^(15-k), k integer bits
// (docs/quantization.md §5, "Recurrent layers"). Sums of 32 bits wrap, so that arguments out of
// range give a meaningless number and nothing worse. Pure functions, thread-safe.
#pragma once

#include <cstdint>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// exp(a) for a <= 0 in F5, result in F0.
int32_t FixedPointExp(int32_t a_f5);

// 1 / x of x > 0 in Fk: the result is value / 2^31 * 2^-bits. The value for 0 is negative.
struct Reciprocal {
  int32_t value = 0;  // F0
  int32_t bits = 0;   // k - leading zeros of x
};
Reciprocal FixedPointReciprocal(int32_t x, int32_t integer_bits);

// log(x) of x >= 1 in F12, result in F5.
int32_t FixedPointLog(int32_t x_f12);

// 1 / sqrt(x) of an integer x >= 1 as a multiplier with an exponent of at most 0; 1 for x below.
Multiplier InverseSquareRoot(int32_t x);

// 1 / (1 + exp(-a)) of a in F3, result in F0.
int16_t FixedPointLogistic16(int16_t a_f3);

// tanh(a) of a in Fk, 0 <= k <= 6, result in F0.
int16_t FixedPointTanh16(int16_t a, int32_t integer_bits);

inline int32_t SaturateToInt16(int64_t x) {
  return static_cast<int32_t>(x < INT16_MIN ? INT16_MIN : (x > INT16_MAX ? INT16_MAX : x));
}

}  // namespace atollrt
