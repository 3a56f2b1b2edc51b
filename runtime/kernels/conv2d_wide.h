// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of elements wider than a byte, NHWC: CONV_2D, DEPTHWISE_CONV_2D, and FULLY_CONNECTED
// as the 1x1 case. These types have no zero points; taps outside the image contribute nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// Of float32: y[o] = clamp(sum of x * w[o], plus bias[o]). The order of the additions is the
// kernel's own, so results may differ from TensorFlow Lite's in the last bits.
struct Conv2DFloatParams {
  using Element = float;
  ConvShape shape;
  FilterKind kind = FilterKind::kConv;
  // float32, possibly unaligned, borrowed during Prepare only. kConv: [output_c, kernel_h,
  // kernel_w, input_c / groups]; kDepthwise: [kernel_h, kernel_w, output_c].
  const uint8_t* weights = nullptr;
  const uint8_t* bias = nullptr;  // float32 [output_c]; nullptr: none
  ValueClamp<float> clamp;
};

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

// Of int16 with int8 weights, sums exact in 64 bits: y[o] = clamp(requantized(sum of x * w[o], plus
// bias[o])), docs/quantization.md §3.
struct Conv2DInt16Params {
  using Element = int16_t;
  ConvShape shape;
  FilterKind kind = FilterKind::kConv;
  const uint8_t* weights = nullptr;  // int8, otherwise as those of floats
  Requantize16Mode mode = Requantize16Mode::kWide;
  ClampRange clamp{-32768, 32767};
  std::vector<Output16Channel> channels;  // [output_c]
};

// Immutable after Prepare; several threads may run one object, each with its own scratch.
template <typename Params>
class WideConv2D {
 public:
  // Packs the weights. kResourceExhausted if they do not fit memory.
  static Result<WideConv2D> Prepare(const Params& params, CpuFeatures features);

  // Bytes of scratch that Run needs with a pool of `threads` threads.
  size_t ScratchBytes(int threads) const;

  // `input` may be unaligned; `output` and `scratch` are aligned to 8 bytes. `pool` may be
  // nullptr.
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;

 private:
  Params params_;  // without weights
  Buffer packed_;
};

using Conv2DFloat = WideConv2D<Conv2DFloatParams>;
using Conv2DInt16 = WideConv2D<Conv2DInt16Params>;

}  // namespace atollrt
