// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of float32, NHWC: CONV_2D, DEPTHWISE_CONV_2D, and FULLY_CONNECTED as the 1x1 case.
//
//   y[o] = clamp(sum over taps inside the image of x * w[o], plus bias[o])
//
// The order of the additions is the kernel's own, so results may differ from TensorFlow Lite's in
// the last bits.
#pragma once

#include <cstdint>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/value_clamp.h"

namespace atollrt {

struct Conv2DFloatParams {
  ConvShape shape;
  FilterKind kind = FilterKind::kConv;
  // float32, possibly unaligned, borrowed during Prepare only. kConv: [output_c, kernel_h,
  // kernel_w, input_c / groups]; kDepthwise: [kernel_h, kernel_w, output_c].
  const uint8_t* weights = nullptr;
  const uint8_t* bias = nullptr;  // float32 [output_c]; nullptr: none
  ValueClamp<float> clamp;
};

// Immutable after Prepare; several threads may run one object, each with its own scratch.
class Conv2DFloat {
 public:
  // Packs the weights. kResourceExhausted if they do not fit memory.
  static Result<Conv2DFloat> Prepare(const Conv2DFloatParams& params, CpuFeatures features);

  // Bytes of scratch that Run needs with a pool of `threads` threads.
  size_t ScratchBytes(int threads) const;

  // `input` may be unaligned; `output` and `scratch` are aligned to 4 bytes. `pool` may be
  // nullptr.
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;

 private:
  int32_t BlockRows() const;  // pixels whose patches are in scratch at a time
  size_t WorkerScratchBytes() const;
  void ConvolveBlock(const uint8_t* input, int64_t pixel, int32_t rows, float* patches,
                     float* output) const;
  void ConvolveDepthwise(const uint8_t* input, int64_t pixel, float* output) const;
  const float* weights() const { return reinterpret_cast<const float*>(packed_.data()); }

  Conv2DFloatParams params_;  // without weights and bias
  // kConv: per group, panels of kPanel columns, [depth][kPanel] each, padded with zeros.
  // kDepthwise: as given. Then the biases, [output_c].
  Buffer packed_;
  const float* bias_ = nullptr;  // in packed_
};

}  // namespace atollrt
