// SPDX-License-Identifier: Apache-2.0
//
// Quantized depthwise convolution, NHWC: output channel i * depth_multiplier + j is input channel
// i filtered with its own kernel. Arithmetic and contracts as in conv2d.h.
#pragma once

#include <cstdint>

#include "runtime/kernels/conv2d.h"

namespace atollrt {

struct DepthwiseConv2DParams {
  // groups is ignored; output_c = input_c * depth multiplier.
  ConvShape shape;
  ByteType input_type = ByteType::kInt8;
  ByteType weight_type = ByteType::kInt8;
  int32_t input_zero_point = 0;
  int32_t weight_zero_point = 0;
  const uint8_t* weights = nullptr;  // [kernel_h, kernel_w, output_c]; borrowed during Prepare
  OutputStage output;
};

// See Conv2D; the same promises hold.
class DepthwiseConv2D {
 public:
  static Result<DepthwiseConv2D> Prepare(const DepthwiseConv2DParams& params, CpuFeatures features);
  size_t ScratchBytes(int threads) const;
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;
  const char* kernel_name() const;

 private:
  DepthwiseConv2DParams params_;
  Buffer packed_;
};

void ReferenceDepthwiseConv2D(const DepthwiseConv2DParams& params, const uint8_t* input,
                              uint8_t* output);

}  // namespace atollrt
