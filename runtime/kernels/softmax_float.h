// SPDX-License-Identifier: Apache-2.0
//
// SOFTMAX of float32: y[i] = exp(beta * (x[i] - max)) / sum, in float32 throughout.
#pragma once

#include <cstdint>

namespace atollrt {

// `input` is [rows, depth] and may be unaligned; `output` likewise, aligned to 4 bytes. depth >= 1.
void SoftmaxFloat(int64_t rows, int32_t depth, float beta, const uint8_t* input, uint8_t* output);

}  // namespace atollrt
