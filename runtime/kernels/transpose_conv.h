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

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
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

// One convolution of stride 1, which computes part of the output.
struct TransposeCell {
  TransposePhase row, column;
  ConvShape shape;
};
// kUnsupported for more than kMaxTransposePhases.
Result<std::vector<TransposeCell>> TransposeCells(const ConvShape& shape);

// The cell's part of the weights, turned around.
Result<Buffer> TransposeCellWeights(const ConvShape& shape, const TransposeCell& cell,
                                    const TransposeConvFormat& format, const uint8_t* weights);
// Puts the cell's output where it belongs in the whole.
void InterleaveTransposeCell(const ConvShape& shape, const TransposeCell& cell, size_t pixel_bytes,
                             const uint8_t* source, uint8_t* output, ThreadPool* pool);

// `Conv` is Conv2D, Conv2DInt16, Conv2DFloat or FloatConv; `Params` are its parameters. Immutable
// after Prepare; several threads may run one object, each with its own scratch.
template <typename Conv, typename Params>
class TransposeConv {
 public:
  // `params` as for a convolution, but its shape is that of the transposed one: input and output
  // sizes, stride and pad of the formula above; dilation 1, groups 1. Weights are [output_c,
  // kernel_h, kernel_w, input_c], borrowed during Prepare only. kUnsupported for more than
  // kMaxTransposePhases, kResourceExhausted if the weights do not fit memory.
  static Result<TransposeConv> Prepare(const Params& params, const TransposeConvFormat& format,
                                       CpuFeatures features) {
    TransposeConv result;
    result.shape_ = params.shape;
    result.pixel_bytes_ = static_cast<size_t>(params.shape.output_c) * format.activation_bytes;
    ATOLL_ASSIGN_OR_RETURN(const std::vector<TransposeCell> cells, TransposeCells(params.shape));
    result.phases_.reserve(cells.size());
    for (const TransposeCell& cell : cells) {
      ATOLL_ASSIGN_OR_RETURN(const Buffer weights,
                             TransposeCellWeights(params.shape, cell, format, params.weights));
      Params phase = params;
      phase.shape = cell.shape;
      phase.weights = weights.data();
      ATOLL_ASSIGN_OR_RETURN(Conv conv, Conv::Prepare(phase, features));
      result.phases_.push_back({cell, std::move(conv)});
    }
    return result;
  }

  // Bytes of scratch that Run needs with a pool of `threads` threads.
  size_t ScratchBytes(int threads) const {
    size_t bytes = 0;
    for (const Phase& phase : phases_) {
      bytes = std::max(bytes, PhaseBytes(phase) + phase.conv.ScratchBytes(threads));
    }
    return bytes;
  }

  // `scratch` is aligned to Buffer::kAlignment; otherwise as Conv::Run.
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const {
    if (phases_.size() == 1 && shape_.stride_h == 1 && shape_.stride_w == 1) {
      phases_[0].conv.Run(input, output, scratch, pool);
      return;
    }
    for (const Phase& phase : phases_) {
      phase.conv.Run(input, scratch, scratch + PhaseBytes(phase), pool);
      InterleaveTransposeCell(shape_, phase.cell, pixel_bytes_, scratch, output, pool);
    }
  }

 private:
  struct Phase {
    TransposeCell cell;
    Conv conv;
  };
  // Of its output, aligned.
  size_t PhaseBytes(const Phase& phase) const {
    const ConvShape& s = phase.cell.shape;
    return AlignUp(static_cast<size_t>(s.batch) * static_cast<size_t>(s.output_h) *
                       static_cast<size_t>(s.output_w) * pixel_bytes_,
                   Buffer::kAlignment);
  }

  ConvShape shape_;
  size_t pixel_bytes_ = 0;  // of the output
  std::vector<Phase> phases_;
};

// The oracle, and what computes shapes that do not split well: the formula, no tricks. Same
// contract as TransposeConv<Conv2D>::Run.
void ReferenceTransposeConv(const Conv2DParams& params, const uint8_t* input, uint8_t* output);

}  // namespace atollrt
