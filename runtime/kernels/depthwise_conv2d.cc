// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/depthwise_conv2d.h"

#include <cstring>

namespace atollrt {

void ReferenceDepthwiseConv2D(const DepthwiseConv2DParams& params, const uint8_t* input,
                              uint8_t* output) {
  const ConvShape& s = params.shape;
  const int32_t depth_multiplier = s.output_c / s.input_c;
  for (int32_t n = 0; n < s.batch; ++n) {
    for (int32_t y = 0; y < s.output_h; ++y) {
      for (int32_t x = 0; x < s.output_w; ++x) {
        for (int32_t o = 0; o < s.output_c; ++o) {
          const int32_t channel = o / depth_multiplier;
          uint32_t accumulator = 0;
          for (int32_t ky = 0; ky < s.kernel_h; ++ky) {
            const int64_t in_y = int64_t{y} * s.stride_h - s.pad_top + int64_t{ky} * s.dilation_h;
            if (in_y < 0 || in_y >= s.input_h) continue;
            for (int32_t kx = 0; kx < s.kernel_w; ++kx) {
              const int64_t in_x =
                  int64_t{x} * s.stride_w - s.pad_left + int64_t{kx} * s.dilation_w;
              if (in_x < 0 || in_x >= s.input_w) continue;
              const uint8_t cell =
                  input[((n * int64_t{s.input_h} + in_y) * s.input_w + in_x) * s.input_c + channel];
              const uint8_t weight =
                  params.weights[(int64_t{ky} * s.kernel_w + kx) * s.output_c + o];
              accumulator += static_cast<uint32_t>(
                  (ByteValue(cell, params.input_type) - params.input_zero_point) *
                  (ByteValue(weight, params.weight_type) - params.weight_zero_point));
            }
          }
          *output++ = static_cast<uint8_t>(
              Requantize(static_cast<int32_t>(accumulator), params.output.mode,
                         params.output.channels[o], params.output.zero_point, params.output.clamp));
        }
      }
    }
  }
}

Result<DepthwiseConv2D> DepthwiseConv2D::Prepare(const DepthwiseConv2DParams& params, CpuFeatures) {
  const ConvShape& s = params.shape;
  DepthwiseConv2D conv;
  const size_t bytes = static_cast<size_t>(int64_t{s.kernel_h} * s.kernel_w * s.output_c);
  ATOLL_ASSIGN_OR_RETURN(conv.packed_, Buffer::Allocate(bytes));
  std::memcpy(conv.packed_.data(), params.weights, bytes);
  conv.params_ = params;
  conv.params_.weights = nullptr;
  return conv;
}

size_t DepthwiseConv2D::ScratchBytes(int) const { return 0; }

void DepthwiseConv2D::Run(const uint8_t* input, uint8_t* output, uint8_t*, ThreadPool*) const {
  DepthwiseConv2DParams params = params_;
  params.weights = packed_.data();
  ReferenceDepthwiseConv2D(params, input, output);
}

const char* DepthwiseConv2D::kernel_name() const { return "ReferenceDepthwiseConv2D"; }

}  // namespace atollrt
