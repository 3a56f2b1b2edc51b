// SPDX-License-Identifier: Apache-2.0
//
// Operators that relate every element to its row: SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION; of
// bytes in fixed point, as TensorFlow Lite's reference kernels compute them (docs/quantization.md
// §5). Thread-safe.
#pragma once

#include <cstdint>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/kernels/row_loops/row_loops.h"

namespace atollrt {

// ---- SOFTMAX ------------------------------------------------------------------------------------
//
// The output of bytes always means scale 1/256 (int16: 1/65536) and zero point at the minimum of
// its type.

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
void Softmax(const SoftmaxParams& params, const SoftmaxTable& table, const RowLoops& loops,
             const uint8_t* input, uint8_t* output, ThreadPool* pool);

// Of float32: y[i] = exp(beta * (x[i] - max)) / sum, in float32 throughout. `input` is [rows,
// depth] and may be unaligned; `output` likewise, aligned to 4 bytes. depth >= 1.
void SoftmaxFloat(int64_t rows, int32_t depth, float beta, const uint8_t* input, uint8_t* output);

// ---- LOG_SOFTMAX --------------------------------------------------------------------------------

struct LogSoftmaxParams : SoftmaxParams {
  Multiplier inverse_multiplier;  // of the inverse of what `multiplier` is of
};

// input_scale must be finite and at least 2^-26.
LogSoftmaxParams MakeLogSoftmaxParams(int64_t rows, int32_t depth, ByteType type,
                                      float input_scale);

// log(softmax) of every row; the output means scale 1/16 and its type's maximum as zero point.
// input and output are [rows, depth]; they may be the same.
void LogSoftmax(const LogSoftmaxParams& params, const uint8_t* input, uint8_t* output);

struct L2NormalizationParams {
  int64_t rows = 0;
  int32_t depth = 0;  // elements normalised together
  ByteType type = ByteType::kInt8;
  int32_t input_zero_point = 0;
};

// Every row divided by its Euclidean length; the output means scale 1/128 and zero point 0 (int8)
// or 128 (uint8). input and output are [rows, depth]; they may be the same.
void L2Normalization(const L2NormalizationParams& params, const uint8_t* input, uint8_t* output);

}  // namespace atollrt
