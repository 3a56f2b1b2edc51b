// SPDX-License-Identifier: Apache-2.0
//
// The geometry of a 2-D convolution or depthwise convolution over NHWC tensors.
#pragma once

#include <cstdint>

namespace atollrt {

// All sizes in elements and at least 1, except pads (>= 0; output_h and output_w may be 0).
// Cells read for output row y, tap t: y * stride_h - pad_top + t * dilation_h.
struct ConvShape {
  int32_t batch = 1;
  int32_t input_h = 1, input_w = 1, input_c = 1;
  int32_t output_h = 1, output_w = 1, output_c = 1;
  int32_t kernel_h = 1, kernel_w = 1;
  int32_t stride_h = 1, stride_w = 1;
  int32_t dilation_h = 1, dilation_w = 1;
  int32_t pad_top = 0, pad_left = 0;
  int32_t groups = 1;  // divides input_c and output_c

  int64_t InputBytes() const { return int64_t{batch} * input_h * input_w * input_c; }
  int64_t OutputBytes() const { return int64_t{batch} * output_h * output_w * output_c; }
  bool operator==(const ConvShape&) const = default;
};

// What an output channel reads: all channels of its group, or one (groups does not count).
enum class FilterKind : uint8_t { kConv, kDepthwise };

}  // namespace atollrt
