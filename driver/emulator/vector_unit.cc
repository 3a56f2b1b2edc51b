// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "driver/emulator/direct_face.h"
#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/pool2d.h"
#include "runtime/kernels/reduce.h"
#include "runtime/kernels/resize.h"

namespace atollrt {
namespace {

// Checked operands fit.
int32_t Size(uint32_t operand) { return static_cast<int32_t>(operand); }

// The axes of a reduction, without those of size 1.
class ReductionLoops {
 public:
  template <ReductionInstruction T>
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

struct VectorUnit::Execution : Operands {
  VectorUnit& unit;
  DirectHost& host = unit.host_;
  ThreadPool* pool = host.pool;

  template <PairInstruction T>
  void operator()(const T& i) const {
    const auto loops = LoopsOf(i);
    Broadcast& broadcast = unit.broadcast_;
    uint64_t reach1 = 1, reach2 = 1;
    broadcast.count = 1;
    broadcast.outer.clear();
    for (size_t k = 0; k < loops.size(); ++k) {
      const auto& [count, stride1, stride2] = loops[k];
      broadcast.count *= count;
      reach1 += uint64_t{count - 1} * stride1;
      reach2 += uint64_t{count - 1} * stride2;
      const BroadcastLoop loop{count, stride1, stride2};
      if (k + 1 == loops.size()) {
        broadcast.inner = loop;
      } else if (count > 1) {
        broadcast.outer.push_back(loop);
      }
    }
    CombineBroadcast(host.combine_pairs, PairParamsOf(i), broadcast, Read(i.input1_address, reach1),
                     Read(i.input2_address, reach2), Write(i.output_address, broadcast.count),
                     pool);
  }

  void operator()(const Pool2DInstruction& i) const {
    const ConvShape whole = ShapeOf(i);
    const uint8_t* input = Read(i.input_address, whole.InputBytes());
    uint8_t* output = Write(i.output_address, whole.OutputBytes());
    const auto run = [&](const ConvShape& s, const uint8_t* from, uint8_t* to, bool) {
      Pool2D({.batch = s.batch,
              .input_h = s.input_h,
              .input_w = s.input_w,
              .channels = s.input_c,
              .output_h = s.output_h,
              .output_w = s.output_w,
              .kernel_h = s.kernel_h,
              .kernel_w = s.kernel_w,
              .stride_h = s.stride_h,
              .stride_w = s.stride_w,
              .pad_top = s.pad_top,
              .pad_left = s.pad_left,
              .type = TypeOf(i.flags),
              .kind = (i.flags & kFlagAverage) != 0 ? PoolKind::kAverage : PoolKind::kMax,
              .clamp = {i.clamp_min, i.clamp_max}},
             unit.loops_, from, to, pool);
    };
    const uint64_t pixel_work = SaturatingProduct(
        {std::min(i.kernel_h, i.input_h), std::min(i.kernel_w, i.input_w), i.channels});
    const uint64_t slice = host.limits.pool_slice;
    if (SaturatingProduct({i.batch, i.output_h, i.output_w, pixel_work}) <= slice) {
      return run(whole, input, output, false);
    }
    ForEachSlice({.shape = whole, .pixel_work = pixel_work, .work_at_once = slice}, &host, input,
                 output, run);
  }

  template <ReductionInstruction T>
  void operator()(const T& i) const {
    const ReductionLoops nest(i);
    const uint8_t* input = Read(i.input_address, nest.inputs());
    uint8_t* output = Write(i.output_address, nest.outputs());
    if constexpr (std::is_same_v<T, ReduceSumInstruction>) {
      ByteSum({.type = TypeOf(i.flags),
               .input_zero_point = i.input_zero_point,
               .multiplier = {i.multiplier, i.exponent},
               .output_zero_point = i.output_zero_point,
               .clamp = {i.clamp_min, i.clamp_max}},
              nest.loops(), unit.loops_, input, output);
    } else {
      constexpr bool kIsMax = std::is_same_v<T, ReduceMaxInstruction>;
      const Extreme which = kIsMax ? Extreme::kMax : Extreme::kMin;
      if (TypeOf(i.flags) == ByteType::kUInt8) {
        ReduceExtreme(which, nest.loops(), nest.outputs(), input, output);
      } else {
        ReduceExtreme(which, nest.loops(), nest.outputs(), input,
                      reinterpret_cast<int8_t*>(output));
      }
    }
  }

  void operator()(const TableInstruction& i) const {
    const uint8_t* table = Read(i.table_address, 256);
    const uint8_t* input = Read(i.input_address, i.count);
    uint8_t* output = Write(i.output_address, i.count);
    ParallelRanges(pool, i.count, kParallelGrain, [&](int64_t begin, int64_t end) {
      unit.loops_.apply_table(table, input + begin, output + begin, end - begin);
    });
  }

  void operator()(const CopyInstruction& i) const {
    StridedCopy& copy = unit.copy_;
    copy.run_bytes = i.bytes;
    copy.loops.clear();
    uint64_t reach = i.bytes, span = i.bytes;
    for (const auto& [count, input_stride, output_stride] : LoopsOf(i)) {
      if (count == 1) continue;
      copy.loops.push_back({count, input_stride, output_stride});
      reach += uint64_t{count - 1} * input_stride;
      span += uint64_t{count - 1} * output_stride;
    }
    const uint8_t* input = Read(i.input_address, reach);
    uint8_t* output = Write(i.output_address, span);
    if (KeepsRunsApart(copy)) {
      RunStridedCopy(copy, input, output, pool);
    } else {
      CopyInOrder(copy.loops, copy.run_bytes, input, output, host.stop);
    }
  }

  void operator()(const FillInstruction& i) const {
    std::memset(Write(i.output_address, i.bytes), static_cast<int>(i.value), i.bytes);
  }

  void operator()(const SoftmaxInstruction& i) const {
    const SoftmaxParams params{.rows = Size(i.rows),
                               .depth = Size(i.depth),
                               .type = TypeOf(i.flags),
                               .multiplier = {i.multiplier, i.exponent},
                               .min_difference = i.min_difference};
    const uint64_t bytes = uint64_t{i.rows} * i.depth;
    UpdateSoftmaxTable(params, &unit.softmax_table_);
    Softmax(params, unit.softmax_table_, unit.loops_, Read(i.input_address, bytes),
            Write(i.output_address, bytes), pool);
  }

  void operator()(const L2NormalizationInstruction& i) const {
    const uint64_t bytes = uint64_t{i.rows} * i.depth;
    L2Normalization({.rows = Size(i.rows),
                     .depth = Size(i.depth),
                     .type = TypeOf(i.flags),
                     .input_zero_point = i.input_zero_point},
                    Read(i.input_address, bytes), Write(i.output_address, bytes));
  }

  template <ResizeInstruction T>
  void operator()(const T& i) const {
    const ResizeParams params{.batch = Size(i.batch),
                              .input_h = Size(i.input_h),
                              .input_w = Size(i.input_w),
                              .channels = Size(i.channels),
                              .output_h = Size(i.output_h),
                              .output_w = Size(i.output_w),
                              .mode = static_cast<ResizeMode>(i.mode)};
    const ResizeBand band{{Size(i.input_first), Size(i.input_rows)},
                          {Size(i.output_first), Size(i.output_rows)}};
    const uint64_t cell_bytes = uint64_t{i.batch} * i.channels;
    const uint8_t* input = Read(i.input_address, cell_bytes * i.input_rows * i.input_w);
    uint8_t* output = Write(i.output_address, cell_bytes * i.output_rows * i.output_w);
    if constexpr (std::is_same_v<T, ResizeBilinearInstruction>) {
      const bool is_unsigned = TypeOf(i.flags) == ByteType::kUInt8;
      const ResizeType type = is_unsigned ? ResizeType::kUInt8 : ResizeType::kInt8;
      const size_t needed = BilinearScratchBytes(params, type, pool->threads());
      ResizeBilinear(params, type, unit.loops_, band, input, output,
                     host.scratch.Reserve(needed) ? host.scratch.data() : nullptr, pool);
    } else {
      ResizeNearest(params, params.channels, band, input, output, pool);
    }
  }

  // What other units execute.
  template <typename T>
  void operator()(const T&) const {
    ATOLL_CHECK(false);
  }
};

VectorUnit::VectorUnit(DirectHost* host) : host_(*host), loops_(ChooseRowLoops(host->features)) {
  broadcast_.outer.reserve(kPairLoops);
  copy_.loops.reserve(kCopyLoops);
}

void VectorUnit::Run(const Instruction& instruction, const Segments& segments) {
  std::visit(Execution{{host_.memory, segments}, *this}, instruction);
}

}  // namespace atollrt
