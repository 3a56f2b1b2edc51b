// SPDX-License-Identifier: Apache-2.0
//
// Products of float32 matrices on Eigen's kernels, compiled once per instruction set from one
// source (float_products.inc). The weights of a layer are packed once, in blocks along the depth;
// what they are multiplied by is packed as it comes. Part of libatoll, not of libatoll-core
// (ops/apart_ops.h).
//
// Sums are ordered and fused as the vectors of a level are, so that levels differ in the last
// places. They depend on how many columns a call has, so callers cut the columns at places of their
// own and not by the number of threads.
//
// No function keeps state or allocates. ISA files include this header, hence no inline functions.
#pragma once

#include <cstdint>

namespace atollrt {

// Columns of one call: as many as share the caches with a block of weights.
inline constexpr int64_t kProductColumns = 48;

struct FloatProducts {
  // Floats of the packed weights [rows, depth].
  int64_t (*packed_floats)(int64_t rows, int64_t depth);
  // `weights`: row-major; aligned to 4 bytes, `packed` to 64.
  void (*pack)(const float* weights, int64_t rows, int64_t depth, float* packed);
  // Floats of scratch that multiply needs.
  int64_t (*scratch_floats)(int64_t depth);
  // y[c * y_stride + r] += sum over k of weights[r, k] * x[c * x_stride + k], for at most
  // kProductColumns columns c. `scratch` is aligned to 64 bytes, x and y to 4.
  void (*multiply)(const float* packed, int64_t rows, int64_t depth, const float* x,
                   int64_t x_stride, int64_t columns, float* y, int64_t y_stride, float* scratch);
};

#define ATOLL_FLOAT_PRODUCTS(name, needed) extern const FloatProducts name;
#include "runtime/kernels/float_products/kernels.inc"
#undef ATOLL_FLOAT_PRODUCTS

const FloatProducts& ChooseFloatProducts(uint32_t features);

}  // namespace atollrt
