// SPDX-License-Identifier: Apache-2.0
//
// Quantized 2-D convolution, NHWC, for byte activations and byte weights: CONV_2D, and
// FULLY_CONNECTED as the 1x1 case. One class prepares (packs weights for the best kernel of this
// CPU) and runs; ReferenceConv2D below is the plainest form and the oracle of all others.
//
//   acc[o] = sum over taps inside the image of (x - input_zero_point) * (w[o] - weight_zero_point)
//   y[o]   = Requantize(acc[o], channels[o])                       docs/quantization.md §3
//
// Taps outside the image contribute nothing. Sums are exact modulo 2^32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/gemm/conv_blocks.h"
#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/gemm/packed_rhs.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// What the output stage needs besides the per-channel numbers.
struct OutputStage {
  RequantizeMode mode = RequantizeMode::kFixedPoint;
  int32_t zero_point = 0;
  ClampRange clamp{-128, 127};
  // Whether Prepare looks for float forms (quantization/float_stage.h) that no packed weights have.
  bool finds_fits = true;
  std::vector<OutputChannel> channels;  // [output_c]
};

// Of a depthwise convolution, too: its groups are ignored, and output_c is a multiple of input_c.
struct Conv2DParams {
  ConvShape shape;
  ByteType input_type = ByteType::kInt8;
  ByteType weight_type = ByteType::kInt8;
  int32_t input_zero_point = 0;   // within the input type's range
  int32_t weight_zero_point = 0;  // within the weight type's range
  // [output_c, kernel_h, kernel_w, input_c / groups]; depthwise: [kernel_h, kernel_w, output_c].
  // Borrowed during Prepare only.
  const uint8_t* weights = nullptr;
  // What PackWeights made of these weights, or of whatever else; used where it lies, unless it is
  // for another layout, or empty.
  std::span<const uint8_t> packed_weights{};
  OutputStage output;
};

// Whether packed weights for kernels with this `fit` keep what it finds.
bool KeepsFits(const OutputStage& output, FitFloatColumn fit);
// For fixed-point output stages.
FixedPointColumn ColumnOf(const Conv2DParams& params, int32_t channel, const WeightSums& sums);

// With the filter that is left of theirs, which must outlive the result.
Conv2DParams With(const NearFilter& near, Conv2DParams params);

// A convolution made ready for one CPU. Immutable after Prepare, so one object may run on several
// threads at once, each with its own scratch.
class Conv2D {
 public:
  // Packs the weights; `params.weights` is not needed afterwards. `features` limits the choice of
  // kernel. kResourceExhausted if the packed weights do not fit memory.
  static Result<Conv2D> Prepare(const Conv2DParams& params, CpuFeatures features);
  // The weights as Prepare packs them for a CPU with `features`, to be kept.
  static std::vector<uint8_t> PackWeights(const Conv2DParams& params, CpuFeatures features);

  // Bytes of scratch that Run needs with a pool of `threads` threads. Any alignment serves.
  size_t ScratchBytes(int threads) const;

  // `input` is shape.InputBytes() long, `output` shape.OutputBytes(); they must not overlap.
  // Reads no byte outside `input`, writes exactly the output. `pool` may be nullptr. Bytes of the
  // output go through the `tail`, if there is one, as soon as they are there; its result must not
  // overlap `input`.
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool,
           const PairTailOperands& tail = {}) const;

  // Lines `lines` of the output of one image, on this thread: `input` has all lines that they
  // depend on, line lines.first goes to the beginning of `output`. `scratch` is ScratchBytes(1)
  // long.
  void RunLines(const LineWindow& input, LineRange lines, uint8_t* output, uint8_t* scratch) const;
  const ConvShape& shape() const { return params_.shape; }

  // The kernel in use, as listed in gemm/kernels.inc, e.g. "GemmAvx2".
  const char* kernel_name() const;
  // Whether params.packed_weights are in use.
  bool uses_packed_weights() const { return uses_packed_weights_; }
  // Output channels whose sums become bytes by a float multiply-add (quantization/float_stage.h).
  int32_t CountFloatChannels() const;

 private:
  // What depends on the weights: packs them, or takes what `packed` has, if it is not nullptr; good
  // for nothing if that has failed.
  // `packed` may be nullptr; `has_fits`: these have float forms, too.
  Status SetWeights(const Conv2DParams& params, PackedWeightsReader* packed, bool has_fits);
  // What one task computes: some output pixels of all images, of some of the columns of each group.
  struct Part {
    ConvBlocks::Input input;
    uint8_t* output;  // of line `output_line`
    int64_t output_line;
    uint8_t* scratch;
    int64_t first_line, end_line;  // counted through the images
    int32_t first_pixel, end_pixel;
    int32_t first_column, end_column;
    PairTailOperands tail = {};
  };
  // What is split between threads: lines of the output, tiles of pixels, or panels of columns.
  enum class Split { kLines, kTiles, kPanels };
  Split ChooseSplit(int threads) const;
  int64_t SplitCount(Split split) const;
  Part RangePart(Split split, int64_t begin, int64_t end) const;
  void RunPart(const Part& part, int32_t group) const;
  void RunBlock(const Part& part, int32_t group, const ConvBlocks::Block& block) const;
  void RunTail(const Part& part, int32_t group, const ConvBlocks::Block& block) const;
  size_t WorkerScratchBytes() const;

  Conv2DParams params_;  // without weights and channels
  const GemmKernel* kernel_ = nullptr;
  ConvBlocks blocks_;
  bool uses_packed_weights_ = false;
  Buffer columns_memory_;               // what the columns point into, and padding
  std::vector<PackedRhs> rhs_;          // [groups]
  std::vector<OutputColumns> columns_;  // [groups]
};

// The oracle: seven loops, no tricks. Same contract as Run.
void ReferenceConv2D(const Conv2DParams& params, const uint8_t* input, uint8_t* output);

}  // namespace atollrt
