// SPDX-License-Identifier: Apache-2.0
//
// SOFTMAX of bytes in fixed point, as TensorFlow Lite's reference kernel computes it
// (docs/quantization.md §5). The output always means scale 1/256 (int16: 1/65536) and zero point at
// the minimum of its type.
#pragma once

#include <cstdint>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/loops/loops.h"
#include "runtime/kernels/quantization.h"

namespace atollrt {

struct SoftmaxParams {
  int64_t rows = 0;
  int32_t depth = 0;  // elements normalised together
  ByteType type = ByteType::kInt8;
  bool to_int16 = false;       // instead of to the same type
  Multiplier multiplier;       // of beta * input scale * 2^26; its exponent is at least 0
  int32_t min_difference = 0;  // smaller x - max count as exp(-inf)
};

// Fills in the multiplier and the bound. beta * input_scale must be finite and > 0.
SoftmaxParams MakeSoftmaxParams(int64_t rows, int32_t depth, ByteType type, float beta,
                                float input_scale);

// The exponentials of all differences of two bytes.
struct SoftmaxTable {
  // What they were computed for.
  Multiplier multiplier;
  int32_t min_difference = 1;     // of nothing yet
  int32_t exponential[256] = {};  // F0; [255 + x - max], 0 below min_difference
  uint32_t term[256] = {};        // of the sum: the same as F12
};
// Does nothing if `table` is that of `params` already.
void UpdateSoftmaxTable(const SoftmaxParams& params, SoftmaxTable* table);

// input and output are [rows, depth]; they may be the same if their types are. `table` is that of
// `params`; `pool` may be nullptr.
void Softmax(const SoftmaxParams& params, const SoftmaxTable& table, const Loops& loops,
             const uint8_t* input, uint8_t* output, ThreadPool* pool);

}  // namespace atollrt
