// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of int16 activations with int8 weights, NHWC: CONV_2D, DEPTHWISE_CONV_2D, and
// FULLY_CONNECTED as the 1x1 case. No zero points; sums are exact in 64 bits.
//
//   acc[o] = sum over taps inside the image of x * w[o], plus bias[o]
//   y[o]   = clamp(requantized acc[o])                              docs/quantization.md §3
#pragma once

#include <cstdint>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/quantization.h"

namespace atollrt {

enum class Requantize16Mode : uint8_t {
  kWide,        // MultiplyByQuantizedMultiplier64; multiplier.exponent < 15
  kFixedPoint,  // MultiplyByQuantizedMultiplier of the sum modulo 2^32 (biases of 32 bits)
  kDouble,      // round(double(acc) * scale), halves away from zero
};

struct Output16Channel {
  int64_t bias = 0;
  Multiplier multiplier;  // kWide, kFixedPoint
  double scale = 0;       // kDouble
};

struct Conv2DInt16Params {
  ConvShape shape;
  FilterKind kind = FilterKind::kConv;
  // int8, borrowed during Prepare only. kConv: [output_c, kernel_h, kernel_w, input_c / groups];
  // kDepthwise: [kernel_h, kernel_w, output_c].
  const uint8_t* weights = nullptr;
  Requantize16Mode mode = Requantize16Mode::kWide;
  ClampRange clamp{-32768, 32767};
  std::vector<Output16Channel> channels;  // [output_c]
};

// Immutable after Prepare; several threads may run one object, each with its own scratch.
class Conv2DInt16 {
 public:
  // kResourceExhausted if the weights do not fit memory.
  static Result<Conv2DInt16> Prepare(const Conv2DInt16Params& params, CpuFeatures features);

  // Bytes of scratch that Run needs with a pool of `threads` threads.
  size_t ScratchBytes(int threads) const;

  // `input` may be unaligned; `output` and `scratch` are aligned to 8 bytes. `pool` may be
  // nullptr.
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;

 private:
  size_t WorkerScratchBytes() const;
  void ConvolvePixel(const uint8_t* input, int64_t pixel, int16_t* patch, int16_t* output) const;
  int16_t Finish(int64_t sum, int32_t channel) const;

  Conv2DInt16Params params_;  // without weights
  Buffer weights_;            // widened to int16
};

}  // namespace atollrt
