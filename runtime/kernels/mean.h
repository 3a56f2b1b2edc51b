// SPDX-License-Identifier: Apache-2.0
//
// MEAN (and SUM) of bytes over positions, per channel; the caller folds the division into the
// multiplier:
//
//   y = clamp(MultiplyByQuantizedMultiplier(S - input_zero_point * positions, multiplier)
//             + output_zero_point)
//
// S sums the raw values. Sums wrap modulo 2^32. Pure function, thread-safe, allocates nothing.
#pragma once

#include <cstdint>

#include "runtime/kernels/quantization.h"

namespace atollrt {

struct MeanParams {
  int32_t batch = 1;  // sizes are at least 1
  int32_t positions = 1;
  int32_t channels = 1;
  ByteType type = ByteType::kInt8;
  int32_t input_zero_point = 0;
  Multiplier multiplier;
  int32_t output_zero_point = 0;
  ClampRange clamp{-128, 127};  // within the type's range
};

// `input` is [batch, positions, channels], `output` [batch, channels]; they must not overlap.
void Mean(const MeanParams& params, const uint8_t* input, uint8_t* output);

}  // namespace atollrt
