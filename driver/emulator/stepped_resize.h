// SPDX-License-Identifier: Apache-2.0
//
// Which cells RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR read, and with which weights: docs/isa.md
// §3, one axis at a time, as the address unit of the stepped vector unit works it out. Of an axis,
// `n` is the size of the whole input, `m` of the whole output, `index` the position in the whole
// output, all within the ranges of docs/isa.md §4. Pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "driver/emulator/isa_arithmetic.h"

namespace atollrt::stepped {

// Where one axis of RESIZE_BILINEAR reads for one output index, with the weights of the two cells:
// as integers that add up to 1024, or, with INPUT_UNSIGNED, in single precision.
struct BilinearAxis {
  std::array<int64_t, 2> cells = {};  // lo, hi
  std::array<int64_t, 2> weights = {};
  std::array<float, 2> real_weights = {};
};

inline BilinearAxis IntegerAxis(int64_t n, int64_t m, int64_t index, uint32_t mode) {
  const bool aligns_ends = mode == 1 && m > 1;
  const int64_t s = aligns_ends ? ((n - 1) * 1024 + (m - 1) / 2) / (m - 1) : (n * 1024 + m / 2) / m;
  const int64_t v = index * s + (mode == 2 ? s / 2 - 512 : 0);
  const int64_t lo = isa::Between(v / 1024, 0, n - 1);
  const int64_t hi = isa::Between((v + 1023) / 1024, 0, n - 1);
  const int64_t f = lo == hi ? 0 : v - 1024 * lo;
  return {.cells = {lo, hi}, .weights = {1024 - f, f}};
}

inline float RealScale(int64_t n, int64_t m, uint32_t mode) {
  const bool aligns_ends = mode == 1 && m > 1;
  return aligns_ends ? static_cast<float>(n - 1) / static_cast<float>(m - 1)
                     : static_cast<float>(n) / static_cast<float>(m);
}

inline BilinearAxis RealAxis(int64_t n, int64_t m, int64_t index, uint32_t mode) {
  const float s = RealScale(n, m, mode);
  const float i = static_cast<float>(index);
  const float v = mode == 2 ? (i + 0.5f) * s - 0.5f : i * s;
  const int64_t lo = isa::Between(static_cast<int64_t>(std::floor(v)), 0, n - 1);
  const int64_t hi = isa::Between(static_cast<int64_t>(std::ceil(v)), 0, n - 1);
  const float f = v - static_cast<float>(lo);
  return {.cells = {lo, hi}, .real_weights = {1 - f, f}};
}

// The cell that RESIZE_NEAREST_NEIGHBOR copies.
inline int64_t NearestCell(int64_t n, int64_t m, int64_t index, uint32_t mode) {
  const float s = RealScale(n, m, mode);
  const float i = static_cast<float>(index);
  const float v = mode == 2 ? (i + 0.5f) * s : i * s;
  const float whole = std::floor(v);
  const int64_t rounded_up = mode == 1 && v - whole >= 0.5f ? 1 : 0;
  return std::min(static_cast<int64_t>(whole) + rounded_up, n - 1);
}

}  // namespace atollrt::stepped
