// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/vector_unit.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "driver/emulator/slices.h"
#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/pool2d.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/kernels/reduce.h"
#include "runtime/kernels/resize.h"

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
// Whether no run touches another's bytes, as far as nested loops show: then their order does not
// matter.
bool KeepsRunsApart(const StridedCopy& copy) {
  std::array<const StridedCopy::Loop*, kCopyLoops> by_stride{};
  size_t count = 0;
  for (const StridedCopy::Loop& loop : copy.loops) {
    size_t place = count++;
    for (; place > 0 && by_stride[place - 1]->out_stride > loop.out_stride; --place) {
      by_stride[place] = by_stride[place - 1];
    }
    by_stride[place] = &loop;
  }
  int64_t extent = copy.run_bytes;
  for (size_t k = 0; k < count; ++k) {
    if (by_stride[k]->out_stride < extent) return false;
    extent += (by_stride[k]->count - 1) * by_stride[k]->out_stride;
  }
  return true;
}

// Runs of a copy after which it looks whether it shall stop.
constexpr int64_t kRunsAtOnce = 1 << 16;

// One run after the other.
void CopyInOrder(std::span<const StridedCopy::Loop> loops, int64_t run_bytes, const uint8_t* input,
                 uint8_t* output, const StopSignal& stop) {
  if (loops.empty()) {
    std::memcpy(output, input, static_cast<size_t>(run_bytes));
    return;
  }
  for (int64_t k = 0; k < loops[0].count; ++k) {
    if (k % kRunsAtOnce == 0 && stop()) return;
    CopyInOrder(loops.subspan(1), run_bytes, input + k * loops[0].in_stride,
                output + k * loops[0].out_stride, stop);
  }
}

}  // namespace

VectorUnit::VectorUnit(OnChipMemory* memory, CpuFeatures features, ThreadPool* pool,
                       const WorkLimits& limits)
    : memory_(*memory),
      pool_(pool),
      limits_(limits),
      combine_pairs_(ChoosePairs(features)),
      loops_(ChooseRowLoops(features)) {
  broadcast_.outer.reserve(kPairLoops);
  copy_.loops.reserve(kCopyLoops);
}

template <PairInstruction T>
void VectorUnit::RunPair(const T& i, const PairParams& params, const Segments& segments) {
  const auto loops = LoopsOf(i);
  uint64_t reach1 = 1, reach2 = 1;
  broadcast_.count = 1;
  broadcast_.outer.clear();
  for (size_t k = 0; k < loops.size(); ++k) {
    const auto& [count, stride1, stride2] = loops[k];
    broadcast_.count *= count;
    reach1 += uint64_t{count - 1} * stride1;
    reach2 += uint64_t{count - 1} * stride2;
    const BroadcastLoop loop{count, stride1, stride2};
    if (k + 1 == loops.size()) {
      broadcast_.inner = loop;
    } else if (count > 1) {
      broadcast_.outer.push_back(loop);
    }
  }
  CombineBroadcast(
      combine_pairs_, params, broadcast_,
      memory_.ReadAt(segments.Resolve(i.input1_address), reach1),
      memory_.ReadAt(segments.Resolve(i.input2_address), reach2),
      memory_.WriteAt(segments.Resolve(i.output_address), static_cast<uint64_t>(broadcast_.count)),
      pool_);
}

PairParams PairParamsOf(const AddInstruction& i) {
  PairParams params;
  params.op = (i.flags & kFlagSquare) != 0     ? PairOp::kSquaredDifference
              : (i.flags & kFlagSubtract) != 0 ? PairOp::kSubtract
                                               : PairOp::kAdd;
  params.type = TypeOf(i.flags);
  params.left_shift = static_cast<int32_t>(i.left_shift);
  params.input1_zero_point = i.input1_zero_point;
  params.input2_zero_point = i.input2_zero_point;
  params.output_zero_point = i.output_zero_point;
  params.input1 = {i.input1_multiplier, i.input1_exponent};
  params.input2 = {i.input2_multiplier, i.input2_exponent};
  params.output = {i.output_multiplier, i.output_exponent};
  params.clamp = {i.clamp_min, i.clamp_max};
  return params;
}

void VectorUnit::Run(const AddInstruction& i, const Segments& segments) {
  RunPair(i, PairParamsOf(i), segments);
}

void VectorUnit::Run(const MultiplyInstruction& i, const Segments& segments) {
  PairParams params;
  params.op = PairOp::kMultiply;
  params.type = TypeOf(i.flags);
  params.input1_zero_point = i.input1_zero_point;
  params.input2_zero_point = i.input2_zero_point;
  params.output_zero_point = i.output_zero_point;
  params.output = {i.output_multiplier, i.output_exponent};
  params.clamp = {i.clamp_min, i.clamp_max};
  RunPair(i, params, segments);
}

void VectorUnit::Run(const MaximumInstruction& i, const Segments& segments) {
  PairParams params;
  params.op = PairOp::kMaximum;
  params.type = TypeOf(i.flags);
  RunPair(i, params, segments);
}

void VectorUnit::Run(const MinimumInstruction& i, const Segments& segments) {
  PairParams params;
  params.op = PairOp::kMinimum;
  params.type = TypeOf(i.flags);
  RunPair(i, params, segments);
}

void VectorUnit::Run(const PreluInstruction& i, const Segments& segments) {
  PairParams params;
  params.op = PairOp::kPrelu;
  params.type = TypeOf(i.flags);
  params.input1_zero_point = i.input1_zero_point;
  params.input2_zero_point = i.input2_zero_point;
  params.output_zero_point = i.output_zero_point;
  params.input1 = {i.positive_multiplier, i.positive_exponent};
  params.output = {i.negative_multiplier, i.negative_exponent};
  params.clamp = {i.clamp_min, i.clamp_max};
  RunPair(i, params, segments);
}

void VectorUnit::Run(const Pool2DInstruction& i, const Segments& segments) {
  Pool2DParams params{.batch = Size(i.batch),
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
  const uint8_t* input = memory_.ReadAt(segments.Resolve(i.input_address), input_bytes);
  uint8_t* output = memory_.WriteAt(segments.Resolve(i.output_address), output_bytes);
  const uint64_t pixel_work = SaturatingProduct(
      {std::min(i.kernel_h, i.input_h), std::min(i.kernel_w, i.input_w), i.channels});
  if (SaturatingProduct({i.batch, i.output_h, i.output_w, pixel_work}) <= limits_.pool_slice) {
    return Pool2D(params, loops_, input, output, pool_);
  }
  const ConvShape shape{.batch = params.batch,
                        .input_h = params.input_h,
                        .input_w = params.input_w,
                        .input_c = params.channels,
                        .output_h = params.output_h,
                        .output_w = params.output_w,
                        .output_c = params.channels,
                        .kernel_h = params.kernel_h,
                        .kernel_w = params.kernel_w,
                        .stride_h = params.stride_h,
                        .stride_w = params.stride_w,
                        .pad_top = params.pad_top,
                        .pad_left = params.pad_left};
  ForEachSlice({.shape = shape, .pixel_work = pixel_work, .work_at_once = limits_.pool_slice},
               stop_, input, output, &cells_,
               [&](const ConvShape& part, const uint8_t* from, uint8_t* to, bool) {
                 params.batch = 1;
                 params.input_h = part.input_h;
                 params.input_w = part.input_w;
                 params.output_h = part.output_h;
                 params.output_w = part.output_w;
                 params.pad_top = part.pad_top;
                 params.pad_left = part.pad_left;
                 Pool2D(params, loops_, from, to, pool_);
               });
}

void VectorUnit::Run(const ReduceSumInstruction& i, const Segments& segments) {
  const ByteSumParams params{.type = TypeOf(i.flags),
                             .input_zero_point = i.input_zero_point,
                             .multiplier = {i.multiplier, i.exponent},
                             .output_zero_point = i.output_zero_point,
                             .clamp = {i.clamp_min, i.clamp_max}};
  const ReductionLoops nest(i);
  ByteSum(params, nest.loops(), loops_,
          memory_.ReadAt(segments.Resolve(i.input_address), nest.inputs()),
          memory_.WriteAt(segments.Resolve(i.output_address), nest.outputs()));
}

void VectorUnit::Run(const TableInstruction& i, const Segments& segments) {
  const uint8_t* table = memory_.ReadAt(segments.Resolve(i.table_address), 256);
  const uint8_t* input = memory_.ReadAt(segments.Resolve(i.input_address), i.count);
  uint8_t* output = memory_.WriteAt(segments.Resolve(i.output_address), i.count);
  ParallelRanges(pool_, i.count, kParallelGrain, [&](int64_t begin, int64_t end) {
    loops_.apply_table(table, input + begin, output + begin, end - begin);
  });
}

void VectorUnit::Run(const CopyInstruction& i, const Segments& segments) {
  copy_.run_bytes = i.bytes;
  copy_.loops.clear();
  uint64_t reach = i.bytes, span = i.bytes;
  for (const auto& [count, input_stride, output_stride] : LoopsOf(i)) {
    if (count == 1) continue;
    copy_.loops.push_back({count, input_stride, output_stride});
    reach += uint64_t{count - 1} * input_stride;
    span += uint64_t{count - 1} * output_stride;
  }
  const uint8_t* input = memory_.ReadAt(segments.Resolve(i.input_address), reach);
  uint8_t* output = memory_.WriteAt(segments.Resolve(i.output_address), span);
  if (KeepsRunsApart(copy_)) {
    RunStridedCopy(copy_, input, output, pool_);
  } else {
    CopyInOrder(copy_.loops, copy_.run_bytes, input, output, stop_);
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
  UpdateSoftmaxTable(params, &softmax_table_);
  Softmax(params, softmax_table_, loops_, memory_.ReadAt(segments.Resolve(i.input_address), bytes),
          memory_.WriteAt(segments.Resolve(i.output_address), bytes), pool_);
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
              ResizeBilinear(params, type, loops_, band, input, output,
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
