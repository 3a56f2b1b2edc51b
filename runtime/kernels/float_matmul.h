// SPDX-License-Identifier: Apache-2.0
//
// BATCH_MATMUL of float32 as products of matrices on Eigen's kernels; what they mean is in
// batch_matmul.h. Results are the same for every number of threads. Part of libatoll, not of
// libatoll-core (ops/apart_ops.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/batch_matmul.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/float_products/float_products.h"

namespace atollrt {

// Immutable; several threads may run one object, each with its own scratch.
class FloatMatMul {
 public:
  FloatMatMul(const BatchMatMulParams& params, CpuFeatures features);

  // Bytes of scratch that Run needs with a pool of `threads` threads.
  size_t ScratchBytes(int threads) const;

  // Operands may be unaligned; `output` is aligned to floats, `scratch` to Buffer::kAlignment.
  // `pool` may be nullptr.
  void Run(const uint8_t* lhs, const uint8_t* rhs, float* output, uint8_t* scratch,
           ThreadPool* pool) const;

 private:
  struct Scratch;  // of a thread, in floats
  Scratch ScratchAt(float* memory) const;
  // Columns of rhs from `column` on for the rows of lhs from `row` on, of one pair of matrices.
  void Multiply(const uint8_t* lhs, const uint8_t* rhs, int64_t row, int64_t column, float* output,
                const Scratch& scratch) const;

  BatchMatMulParams params_;
  const FloatProducts* products_;
};

}  // namespace atollrt
