// SPDX-License-Identifier: Apache-2.0
//
// MEAN and SUM of bytes over any axes; the caller folds the division into the multiplier:
//
//   y = clamp(MultiplyByQuantizedMultiplier(S - input_zero_point * n, multiplier)
//             + output_zero_point)
//
// S sums n raw values. Sums wrap modulo 2^32. Pure function, thread-safe, allocates nothing.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/kernels/loops/loops.h"
#include "runtime/kernels/quantization.h"
#include "runtime/kernels/reduce.h"

namespace atollrt {

struct ByteSumParams {
  ByteType type = ByteType::kInt8;
  int32_t input_zero_point = 0;
  Multiplier multiplier;
  int32_t output_zero_point = 0;
  ClampRange clamp{-128, 127};  // within the type's range
};

// `nest` is that of a ReducePlan for the input; any number of loops, and their counts may be 1.
// Input and output must not overlap.
void ByteSum(const ByteSumParams& params, std::span<const ReduceLoop> nest, const Loops& loops,
             const uint8_t* input, uint8_t* output);

}  // namespace atollrt
