// SPDX-License-Identifier: Apache-2.0
//
// MAX_POOL_2D and AVERAGE_POOL_2D, NHWC. The window is cut at the border of the image;
// n counts the cells inside, S is the sum of their raw values (zero points included).
//
//   maximum              y = clamp(max)
//   average, kUInt8      y = clamp((S + n/2) / n)                           / truncates
//   average, kInt8       y = clamp(S > 0 ? (S + n/2) / n : (S - n/2) / n); int16 alike
//   average, float32     y = clamp(S / n)
//
// S is exact while n <= 2^23 (bytes) or 2^15 (int16). Pure function, thread-safe, allocates
// nothing.
#pragma once

#include <cstdint>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/kernels/row_loops/row_loops.h"

namespace atollrt {

enum class PoolKind : uint8_t { kMax, kAverage };

// All sizes in elements and at least 1, pads at least 0; any may be as large as 2^31 - 1. Every
// window must hold at least one cell of the image.
struct Pool2DParams {
  int32_t batch = 1;
  int32_t input_h = 1, input_w = 1, channels = 1;
  int32_t output_h = 1, output_w = 1;
  int32_t kernel_h = 1, kernel_w = 1;
  int32_t stride_h = 1, stride_w = 1;
  int32_t pad_top = 0, pad_left = 0;
  ByteType type = ByteType::kInt8;  // of Pool2D
  PoolKind kind = PoolKind::kMax;
  ClampRange clamp{-128, 127};  // within the type's range; of Pool2D and Pool2DInt16
};

// `input` is [batch, input_h, input_w, channels], `output` [batch, output_h, output_w, channels];
// they must not overlap. Rows of the output are shared out over `pool`, which may be nullptr.
void Pool2D(const Pool2DParams& params, const RowLoops& loops, const uint8_t* input,
            uint8_t* output, ThreadPool* pool);

// The same for wider elements. `input` may be unaligned.
void Pool2DInt16(const Pool2DParams& params, const uint8_t* input, int16_t* output,
                 ThreadPool* pool);
void Pool2DFloat(const Pool2DParams& params, const ValueClamp<float>& clamp, const uint8_t* input,
                 float* output, ThreadPool* pool);

}  // namespace atollrt
