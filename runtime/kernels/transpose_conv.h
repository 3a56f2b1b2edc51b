// SPDX-License-Identifier: Apache-2.0
//
// TRANSPOSE_CONV, NHWC, for every type that has a convolution kernel:
//
//   acc[oy, ox, o] = sum over iy, ix, ky, kx with oy = iy * stride - pad + ky, ox likewise,
//                    of (x[iy, ix] - input zero point) * (w[o, ky, kx] - weight zero point)
//
// Output rows whose (oy + pad) leaves the same remainder modulo the stride see the same taps of
// the filter, every stride-th one, and they see them like an ordinary convolution of stride 1 with
// the filter turned around (docs/quantization.md §3). So the output falls apart into
// stride_h * stride_w interleaved images, its phases, each of which is one convolution with a part
// of the filter. No product is computed in vain, and the fast kernels serve.
#pragma once

#include <cstdint>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/cpu_features.h"

namespace atollrt {

// One phase along one axis.
struct TransposePhase {
  int32_t first = 0;      // its first output index; the others follow at intervals of the stride
  int32_t count = 0;      // of output indices
  int32_t first_tap = 0;  // its taps of the filter are first_tap, first_tap + stride, ...
  int32_t taps = 0;       // >= 1; those past the end of the filter are zeros
  int32_t pad = 0;        // cells before the input, of the convolution with the turned filter
};

struct TransposeAxis {
  int32_t output = 1, filter = 1, stride = 1, pad = 0;  // pad >= 0
};
// Those that have at least one output index: min(stride, output) of them.
std::vector<TransposePhase> SplitTransposeConv(const TransposeAxis& axis);

// Those of all phases along both axes, zeros among them.
int64_t TransposeTaps(const ConvShape& shape);

// Whether phases are the way to compute a shape: not if there are more than kMaxTransposePhases or
// if most of their taps are zeros, as with strides far beyond the filter.
bool SplitsWell(const ConvShape& shape);
// Models have strides of 2 to 32.
inline constexpr size_t kMaxTransposePhases = 1024;

// What the type is about.
struct TransposeConvFormat {
  size_t activation_bytes = 1;
  size_t weight_bytes = 1;
  uint8_t zero_weight = 0;  // the byte of a weight that means 0
};

// `Conv` is Conv2D, Conv2DInt16 or Conv2DFloat; `Params` are its parameters. Immutable after
// Prepare; several threads may run one object, each with its own scratch.
template <typename Conv, typename Params>
class TransposeConv {
 public:
  // `params` as for a convolution, but its shape is that of the transposed one: input and output
  // sizes, stride and pad of the formula above; dilation 1, groups 1. Weights are [output_c,
  // kernel_h, kernel_w, input_c], borrowed during Prepare only. kUnsupported for more than
  // kMaxTransposePhases, kResourceExhausted if the weights do not fit memory.
  static Result<TransposeConv> Prepare(const Params& params, const TransposeConvFormat& format,
                                       CpuFeatures features);

  // Bytes of scratch that Run needs with a pool of `threads` threads.
  size_t ScratchBytes(int threads) const;

  // `scratch` is aligned to Buffer::kAlignment; otherwise as Conv::Run.
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;

 private:
  struct Phase {
    TransposePhase row, column;
    Conv conv;
  };
  size_t PhaseBytes(const Phase& phase) const;  // of its output, aligned
  void Interleave(const Phase& phase, const uint8_t* source, uint8_t* output,
                  ThreadPool* pool) const;

  ConvShape shape_;
  size_t pixel_bytes_ = 0;  // of the output
  std::vector<Phase> phases_;
};

// The oracle, and what computes shapes that do not split well: the formula, no tricks. Same
// contract as TransposeConv<Conv2D>::Run.
void ReferenceTransposeConv(const Conv2DParams& params, const uint8_t* input, uint8_t* output);

}  // namespace atollrt
