// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/vector_unit.h"

#include <array>
#include <cstring>
#include <span>

#include "runtime/kernels/byte_sum.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/pool2d.h"
#include "runtime/kernels/quantization.h"
#include "runtime/kernels/resize.h"
#include "runtime/kernels/softmax.h"

namespace atollrt {
namespace {

ByteType TypeOf(uint32_t flags) {
  return (flags & kFlagInputUnsigned) != 0 ? ByteType::kUInt8 : ByteType::kInt8;
}

// Checked operands fit.
int32_t Size(uint32_t operand) { return static_cast<int32_t>(operand); }

// The axes of a reduction, without those of size 1.
class ReductionLoops {
 public:
  template <typename T>
  explicit ReductionLoops(const T& i) {
    const uint32_t sizes[] = {i.kept0, i.reduced0, i.kept1, i.reduced1, i.kept2, i.reduced2};
    first_ = kAxes;
    for (size_t axis = kAxes; axis-- > 0;) {
      const bool is_kept = axis % 2 == 0;
      if (sizes[axis] == 1) continue;
      loops_[--first_] = {sizes[axis], inputs_, is_kept ? outputs_ : 0};
      inputs_ *= sizes[axis];
      if (is_kept) outputs_ *= sizes[axis];
    }
  }

  std::span<const ReduceLoop> loops() const { return std::span(loops_).subspan(first_); }
  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }

 private:
  static constexpr size_t kAxes = 6;
  std::array<ReduceLoop, kAxes> loops_;
  size_t first_;
  int64_t inputs_ = 1, outputs_ = 1;
};

}  // namespace

void VectorUnit::Run(const AddInstruction& i, const Segments& segments) {
  AddParams params;
  params.type = TypeOf(i.flags);
  params.kind = (i.flags & kFlagSubtract) != 0 ? AddKind::kSubtract : AddKind::kAdd;
  params.left_shift = static_cast<int32_t>(i.left_shift);
  params.input1_zero_point = i.input1_zero_point;
  params.input2_zero_point = i.input2_zero_point;
  params.output_zero_point = i.output_zero_point;
  params.input1 = {i.input1_multiplier, i.input1_exponent};
  params.input2 = {i.input2_multiplier, i.input2_exponent};
  params.output = {i.output_multiplier, i.output_exponent};
  params.clamp = {i.clamp_min, i.clamp_max};
  add_(params, memory_.ReadAt(segments.Resolve(i.input1_address), i.count),
       memory_.ReadAt(segments.Resolve(i.input2_address), i.count),
       memory_.WriteAt(segments.Resolve(i.output_address), i.count), i.count);
}

void VectorUnit::Run(const Pool2DInstruction& i, const Segments& segments) {
  const Pool2DParams params{
      .batch = Size(i.batch),
      .input_h = Size(i.input_h),
      .input_w = Size(i.input_w),
      .channels = Size(i.channels),
      .output_h = Size(i.output_h),
      .output_w = Size(i.output_w),
      .kernel_h = Size(i.kernel_h),
      .kernel_w = Size(i.kernel_w),
      .stride_h = Size(i.stride_h),
      .stride_w = Size(i.stride_w),
      .pad_top = Size(i.pad_top),
      .pad_left = Size(i.pad_left),
      .type = TypeOf(i.flags),
      .kind = (i.flags & kFlagAverage) != 0 ? PoolKind::kAverage : PoolKind::kMax,
      .clamp = {i.clamp_min, i.clamp_max}};
  const uint64_t input_bytes = uint64_t{i.batch} * i.input_h * i.input_w * i.channels;
  const uint64_t output_bytes = uint64_t{i.batch} * i.output_h * i.output_w * i.channels;
  Pool2D(params, memory_.ReadAt(segments.Resolve(i.input_address), input_bytes),
         memory_.WriteAt(segments.Resolve(i.output_address), output_bytes));
}

void VectorUnit::Run(const ReduceSumInstruction& i, const Segments& segments) {
  const ByteSumParams params{.type = TypeOf(i.flags),
                             .input_zero_point = i.input_zero_point,
                             .multiplier = {i.multiplier, i.exponent},
                             .output_zero_point = i.output_zero_point,
                             .clamp = {i.clamp_min, i.clamp_max}};
  const ReductionLoops nest(i);
  ByteSum(params, nest.loops(), memory_.ReadAt(segments.Resolve(i.input_address), nest.inputs()),
          memory_.WriteAt(segments.Resolve(i.output_address), nest.outputs()));
}

void VectorUnit::Run(const TableInstruction& i, const Segments& segments) {
  const uint8_t* table = memory_.ReadAt(segments.Resolve(i.table_address), 256);
  const uint8_t* input = memory_.ReadAt(segments.Resolve(i.input_address), i.count);
  uint8_t* output = memory_.WriteAt(segments.Resolve(i.output_address), i.count);
  for (uint32_t k = 0; k < i.count; ++k) output[k] = table[input[k]];
}

void VectorUnit::Run(const CopyInstruction& i, const Segments& segments) {
  const uint64_t from = segments.Resolve(i.input_address);
  const uint64_t to = segments.Resolve(i.output_address);
  const uint64_t span = uint64_t{i.count0 - 1} * i.output_stride0 +
                        uint64_t{i.count1 - 1} * i.output_stride1 +
                        uint64_t{i.count2 - 1} * i.output_stride2 + i.bytes;
  const uint8_t* input = memory_.ReadAt(from, i.bytes);
  uint8_t* output = memory_.WriteAt(to, span);
  for (uint64_t i0 = 0; i0 < i.count0; ++i0) {
    for (uint64_t i1 = 0; i1 < i.count1; ++i1) {
      for (uint64_t i2 = 0; i2 < i.count2; ++i2) {
        std::memcpy(output + i0 * i.output_stride0 + i1 * i.output_stride1 + i2 * i.output_stride2,
                    input + i0 * i.input_stride0 + i1 * i.input_stride1 + i2 * i.input_stride2,
                    i.bytes);
      }
    }
  }
}

void VectorUnit::Run(const FillInstruction& i, const Segments& segments) {
  std::memset(memory_.WriteAt(segments.Resolve(i.output_address), i.bytes),
              static_cast<int>(i.value), i.bytes);
}

template <typename T>
void VectorUnit::RunExtreme(Extreme which, const T& i, const Segments& segments) {
  const ReductionLoops nest(i);
  const uint8_t* input = memory_.ReadAt(segments.Resolve(i.input_address), nest.inputs());
  uint8_t* output = memory_.WriteAt(segments.Resolve(i.output_address), nest.outputs());
  if (TypeOf(i.flags) == ByteType::kUInt8) {
    ReduceExtreme(which, nest.loops(), nest.outputs(), input, output);
  } else {
    ReduceExtreme(which, nest.loops(), nest.outputs(), input, reinterpret_cast<int8_t*>(output));
  }
}

void VectorUnit::Run(const ReduceMaxInstruction& i, const Segments& segments) {
  RunExtreme(Extreme::kMax, i, segments);
}

void VectorUnit::Run(const ReduceMinInstruction& i, const Segments& segments) {
  RunExtreme(Extreme::kMin, i, segments);
}

void VectorUnit::Run(const SoftmaxInstruction& i, const Segments& segments) {
  const SoftmaxParams params{.rows = Size(i.rows),
                             .depth = Size(i.depth),
                             .type = TypeOf(i.flags),
                             .multiplier = {i.multiplier, i.exponent},
                             .min_difference = i.min_difference};
  const uint64_t bytes = uint64_t{i.rows} * i.depth;
  Softmax(params, memory_.ReadAt(segments.Resolve(i.input_address), bytes),
          memory_.WriteAt(segments.Resolve(i.output_address), bytes));
}

void VectorUnit::Run(const L2NormalizationInstruction& i, const Segments& segments) {
  const L2NormalizationParams params{.rows = Size(i.rows),
                                     .depth = Size(i.depth),
                                     .type = TypeOf(i.flags),
                                     .input_zero_point = i.input_zero_point};
  const uint64_t bytes = uint64_t{i.rows} * i.depth;
  L2Normalization(params, memory_.ReadAt(segments.Resolve(i.input_address), bytes),
                  memory_.WriteAt(segments.Resolve(i.output_address), bytes));
}

template <typename T, typename Function>
void VectorUnit::RunResize(const T& i, const Segments& segments, const Function& resize) {
  const ResizeParams params{.batch = Size(i.batch),
                            .input_h = Size(i.input_h),
                            .input_w = Size(i.input_w),
                            .channels = Size(i.channels),
                            .output_h = Size(i.output_h),
                            .output_w = Size(i.output_w),
                            .mode = static_cast<ResizeMode>(i.mode)};
  const ResizeBand band{{Size(i.input_first), Size(i.input_rows)},
                        {Size(i.output_first), Size(i.output_rows)}};
  const uint64_t input_bytes = uint64_t{i.batch} * i.input_rows * i.input_w * i.channels;
  const uint64_t output_bytes = uint64_t{i.batch} * i.output_rows * i.output_w * i.channels;
  resize(params, band, memory_.ReadAt(segments.Resolve(i.input_address), input_bytes),
         memory_.WriteAt(segments.Resolve(i.output_address), output_bytes));
}

void VectorUnit::Run(const ResizeBilinearInstruction& i, const Segments& segments) {
  const bool is_unsigned = TypeOf(i.flags) == ByteType::kUInt8;
  const ResizeType type = is_unsigned ? ResizeType::kUInt8 : ResizeType::kInt8;
  RunResize(i, segments,
            [&](const ResizeParams& params, const ResizeBand& band, const uint8_t* input,
                uint8_t* output) {
              const int threads = pool_ != nullptr ? pool_->threads() : 1;
              const bool has_scratch =
                  scratch_.Reserve(BilinearScratchBytes(params, type, threads));
              ResizeBilinear(params, type, band, input, output,
                             has_scratch ? scratch_.data() : nullptr, pool_);
            });
}

void VectorUnit::Run(const ResizeNearestNeighborInstruction& i, const Segments& segments) {
  RunResize(
      i, segments,
      [&](const ResizeParams& params, const ResizeBand& band, const uint8_t* input,
          uint8_t* output) { ResizeNearest(params, params.channels, band, input, output, pool_); });
}

}  // namespace atollrt
