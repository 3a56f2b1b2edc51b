// SPDX-License-Identifier: Apache-2.0
//
// Loops over float32 that are written as vectors: exponential functions, and sums of products along
// rows. Their one source (float_loops.inc) is compiled once per instruction set, and a FloatLoops
// holds what came out. Part of libatoll, not of libatoll-core (ops/apart_ops.h).
//
// Functions of one number are within 4 units in the last place of the exact value and give the same
// bytes at every level. Sums of products are fused and ordered as the vectors of a level are, so
// that levels differ in the last places; they never depend on how many threads share the work.
//
// No loop keeps state or allocates. Operands may be unaligned and counts 0. ISA files include this
// header, hence no inline functions here.
#pragma once

#include <cstdint>

namespace atollrt {

// What is written NaN comes out as NaN.
enum class FloatMap : uint8_t {
  kExp,
  kLogistic,  // 1 / (1 + exp(-x))
  kTanh,
  kElu,  // x > 0 ? x : exp(x) - 1
  kAbs,
  kNegate,
  kSquare,
};
// y may be x, but not overlap it otherwise.
using FloatMapFn = void (*)(const uint8_t* x, uint8_t* y, int64_t count);

// One row of the output of a filter or window that looks at each channel alone. Rows of the window
// that are outside of the image are left out: `input` is the first cell of the image's row that
// the first one left reads, `weights` and `rows` begin with it.
struct FloatWindowRow {
  const uint8_t* input = nullptr;
  int64_t input_row_bytes = 0;  // from what one row of the window reads to what the next one does
  int64_t input_w = 1, input_c = 1;
  int64_t output_w = 1, output_c = 1;  // a multiple of input_c
  int64_t rows = 1, kernel_w = 1;      // of the window; at least one row
  int64_t stride_w = 1, dilation_w = 1, pad_left = 0;
  const uint8_t* weights = nullptr;  // of filters: [rows, kernel_w, output_c]
  const uint8_t* bias = nullptr;     // of filters: [output_c]; nullptr: none
  float min = 0, max = 0;            // results are clamped
  uint8_t* output = nullptr;         // [output_w, output_c]
};

struct FloatRows {
  const uint8_t* x = nullptr;
  uint8_t* y = nullptr;  // may be x
  int64_t rows = 0, depth = 1;
  float beta = 1;  // softmax: of exp(beta x)
};

// sums[i] and x[i] to sums[i]; greatest and least as `a > b ? a : b`.
enum class FloatFold : uint8_t { kSum, kMax, kMin };
using FloatFoldFn = void (*)(const uint8_t* x, float* sums, int64_t count);
// All of x, in an order of its own, and `start` to one number.
using FloatFoldRowFn = float (*)(const uint8_t* x, int64_t count, float start);

struct FloatLoops {
  FloatMapFn (*map)(FloatMap map);

  // Columns of `rows` floats, `stride` floats apart: all become `values`, or are clamped.
  void (*fill)(const float* values, int64_t rows, int64_t columns, float* y, int64_t stride);
  void (*clamp)(float min, float max, int64_t rows, int64_t columns, float* y, int64_t stride);

  void (*depthwise_row)(const FloatWindowRow& row);
  // Of the cells of the window that are inside of the image, of which there is at least one.
  void (*max_pool_row)(const FloatWindowRow& row);
  void (*average_pool_row)(const FloatWindowRow& row);

  void (*softmax)(const FloatRows& rows);
  // x / the norm of its row, or 1e-6 if that is more.
  void (*l2_normalize)(const FloatRows& rows);

  FloatFoldFn (*fold)(FloatFold fold);
  FloatFoldRowFn (*fold_row)(FloatFold fold);
};

#define ATOLL_FLOAT_LOOPS(name, features) extern const FloatLoops name;
#include "runtime/kernels/float_loops/kernels.inc"
#undef ATOLL_FLOAT_LOOPS

// The fastest for a CPU with `features` (a CpuFeatures); choose once, when preparing.
const FloatLoops& ChooseFloatLoops(uint32_t features);

}  // namespace atollrt
