// SPDX-License-Identifier: Apache-2.0
//
// Weights less their zero point lie in [-255, 255], but the kernels for bytes multiply int8. What
// does not fit is a sum of parts that do, each multiplied on its own. Pure functions.
#pragma once

#include <cstdint>

namespace atollrt {

// No number in [-255, 255] has more parts that are not 0; most have one.
inline constexpr int32_t kByteParts = 3;

// Part number `part` of `value`.
constexpr int32_t BytePart(int32_t value, int32_t part) {
  const auto nearest = [](int32_t x) { return x < -128 ? -128 : (x > 127 ? 127 : x); };
  for (; part > 0; --part) value -= nearest(value);
  return nearest(value);
}

}  // namespace atollrt
