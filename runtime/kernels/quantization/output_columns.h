// SPDX-License-Identifier: Apache-2.0
//
// The output stage of a convolution as vector code wants it: one array per field, padded to whole
// vectors. A column is an output channel. Every kernel computes int32 accumulators that already
// contain the column's bias and hands them to its ISA's requantize_*.h, which is specified by
// Requantize() in quantization.h and equals it for every input.
//
// The arrays live in memory that the owner of the convolution provides, so copies of this struct
// are cheap. Immutable once written; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// Over the weights of an output channel, less their zero point.
struct WeightSums {
  int64_t sum = 0;
  int64_t absolute = 0;  // of absolute values
};

struct OutputColumns {
  // Arrays are padded to a multiple of this with columns that yield anything, and aligned to 64
  // bytes, so kernels may load whole vectors at the end.
  static constexpr int32_t kPadding = 32;
  // `vectorizable` has one entry per this many columns.
  static constexpr int32_t kBlock = 16;

  RequantizeMode mode = RequantizeMode::kFixedPoint;
  int32_t zero_point = 0;
  ClampRange clamp;
  int32_t count = 0;

  // The start value of each accumulator: the bias with all that depends only on the weights.
  int32_t* bias = nullptr;
  // kFixedPoint: y = x * multiplier * 2^-(31 + shift). Never {0, 0}: zero is {0, shift 1}.
  int32_t* multiplier = nullptr;
  int32_t* shift = nullptr;
  double* scale = nullptr;  // kDouble
  // 1 where all columns of the block satisfy, in kFixedPoint,
  //   0 <= multiplier, 1 <= shift <= 22, |accumulator| < 2^30 for every possible input,
  // which the vector code relies on (requantize_avx2.h has the derivation); in kDouble always 1.
  uint8_t* vectorizable = nullptr;

  // 1 where all columns of the block satisfy, in kFixedPoint, 0 <= multiplier, whatever shifts and
  // accumulators are; in kDouble always 1. Channels that are nearly dead have multipliers above
  // one, dead ones tiny multipliers and huge biases: vector code that does step by step what
  // quantization.h says serves them all.
  uint8_t* wide_vectorizable = nullptr;

  // Bytes of memory for `count` columns, aligned to 64.
  static size_t Bytes(int32_t count);

  // Lays the arrays of `count` columns out in `memory` (64-byte aligned, Bytes(count) long,
  // zeroed). The columns themselves are then given by Set, each once.
  static OutputColumns In(uint8_t* memory, int32_t count, RequantizeMode mode, int32_t zero_point,
                          ClampRange clamp);

  // `folded_bias` replaces channel.bias. No accumulator of this column, bias included, exceeds
  // `magnitude`.
  void Set(int32_t column, const OutputChannel& channel, int32_t folded_bias, int64_t magnitude);
  // The same with all folded into the bias that weights alone determine (gemm.h), for activations
  // of `type` to which the kernel adds `offset`.
  void Set(int32_t column, const OutputChannel& channel, const WeightSums& sums, ByteType type,
           int32_t input_zero_point, int32_t offset);
};

// How vector code (requantize.h) goes from accumulators to bytes.
enum class Epilogue {
  kFixedPoint,          // where columns are vectorizable
  kFixedPointPositive,  // likewise, with a clamp at or above the zero point; AVX-512 only
  kWide,                // wide_vectorizable: step by step as quantization.h does
  kDouble,
};

// The plain form of the last step, and what vector kernels fall back to where a block is not
// vectorizable: out[r][c] = Requantize(accumulators[r][c]) for `rows` rows and the columns
// [first, first + count). Strides in elements. Writes exactly rows * count bytes.
struct RequantizeArgs {
  const int32_t* accumulators = nullptr;  // bias included
  int64_t accumulator_stride = 0;
  int32_t rows = 0;
  int32_t first = 0;
  int32_t count = 0;
  uint8_t* output = nullptr;  // row 0, column `first`
  int64_t output_stride = 0;
};
void RequantizePlain(const OutputColumns& columns, const RequantizeArgs& args);

}  // namespace atollrt
