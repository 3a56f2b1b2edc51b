// SPDX-License-Identifier: Apache-2.0
//
// BATCH_MATMUL: matrices [m, k] times matrices [k, n], in up to three broadcast leading dimensions.
//
//   int8, int16   y = clamp(requantized sum of (a - za) * (b - zb), plus zero point)
//   float32       y = sum of a * b, in the order of k
//
// Exact in int8 and int16 (docs/quantization.md §10). Operands may be unaligned.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// Whether a matrix is stored with its rows or its columns together.
enum class MatrixLayout : uint8_t { kRowMajor, kColumnMajor };

// One leading dimension: its size, and how far the operands move per step, in matrices; 0 repeats.
struct MatrixBatch {
  int64_t count = 1;
  int64_t lhs_stride = 0, rhs_stride = 0;
};

struct BatchMatMulParams {
  int32_t m = 1, k = 1, n = 1;
  MatrixLayout lhs = MatrixLayout::kRowMajor;
  MatrixLayout rhs = MatrixLayout::kRowMajor;
  std::array<MatrixBatch, 3> batches;  // outermost first

  // Integer types. int16 has zero points 0 and a multiplier.exponent < 15.
  int32_t lhs_zero_point = 0, rhs_zero_point = 0, output_zero_point = 0;
  Multiplier multiplier;
};

enum class BatchMatMulType : uint8_t { kInt8, kInt16, kFloat32 };

// For one pair of matrices, rearranged.
size_t BatchMatMulScratchBytes(const BatchMatMulParams& params, BatchMatMulType type);

// `output` and `scratch` are aligned to 64 bytes; `pool` may be nullptr.
void BatchMatMul(const BatchMatMulParams& params, BatchMatMulType type, const uint8_t* lhs,
                 const uint8_t* rhs, uint8_t* output, uint8_t* scratch, ThreadPool* pool);

}  // namespace atollrt
