// SPDX-License-Identifier: Apache-2.0
//
// Operators of bytes that relate every element to its row, in fixed point (docs/quantization.md
// §5): LOG_SOFTMAX and L2_NORMALIZATION. SOFTMAX has a file of its own. Thread-safe.
#pragma once

#include <cstdint>

#include "runtime/kernels/quantization.h"

namespace atollrt {

struct LogSoftmaxParams {
  int64_t rows = 0;
  int32_t depth = 0;  // elements normalised together
  ByteType type = ByteType::kInt8;
  Multiplier multiplier;          // of input scale * 2^26; its exponent is at least 0
  Multiplier inverse_multiplier;  // of its inverse
  int32_t min_difference = 0;     // smaller x - max count as exp(-inf)
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
