// SPDX-License-Identifier: Apache-2.0
//
// The functions of recurrent layers in 16 bits: "Fk" is an int16 whose real value is
// raw / 2^(15-k), k integer bits (docs/quantization.md, "Recurrent layers"). Pure functions,
// thread-safe.
#pragma once

#include <cstdint>

namespace atollrt {

// 1 / (1 + exp(-a)) of a in F3, result in F0.
int16_t FixedPointLogistic16(int16_t a_f3);

// tanh(a) of a in Fk, 0 <= k <= 6, result in F0.
int16_t FixedPointTanh16(int16_t a, int32_t integer_bits);

inline int32_t SaturateToInt16(int32_t x) {
  return x < INT16_MIN ? INT16_MIN : (x > INT16_MAX ? INT16_MAX : x);
}

}  // namespace atollrt
