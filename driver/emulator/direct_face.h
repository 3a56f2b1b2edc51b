// SPDX-License-Identifier: Apache-2.0
//
// The direct face of the emulator: DirectArray and VectorUnit run whole instructions through the
// kernels of runtime/kernels. Instructions that take long run in slices, between which they can be
// stopped. Not thread-safe, but spreads the work over a pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <unordered_map>

#include "driver/emulator/memory.h"
#include "driver/emulator/stop_signal.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/kernels/recurrent.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/kernels/strided_copy.h"

namespace atollrt {

// When instructions run in slices, and how large these are: in multiply-accumulates, of poolings in
// elements. More than sane programs have, and a fraction of a second. Results do not depend on it.
struct WorkLimits {
  uint64_t long_filter = uint64_t{1} << 31;
  uint64_t long_narrow_filter = uint64_t{1} << 28;  // of few channels, which kernels are slow with
  uint64_t filter_slice = uint64_t{1} << 27;
  uint64_t plain_slice = uint64_t{1} << 26;  // of filters for which no kernel can be prepared
  uint64_t lstm_slice = uint64_t{1} << 28;
  uint64_t pool_slice = uint64_t{1} << 28;
};

// Lent to both units, which work one at a time.
struct DirectHost {
  OnChipMemory* memory;
  ThreadPool* pool;
  CpuFeatures features;
  WorkLimits limits = {};
  // Instructions in progress end early when it says so.
  StopSignal stop = {};
  HostScratch scratch{memory->size()};
  HostScratch cells{memory->size()};  // of slices
  PairFn combine_pairs = ChoosePairs(features);
};

// On-chip memory as an instruction addresses it, which has passed CheckInstruction.
struct Operands {
  OnChipMemory* memory;
  const Segments& segments;

  const uint8_t* Read(uint32_t address, uint64_t bytes) const {
    return memory->ReadAt(segments.Resolve(address), bytes);
  }
  uint8_t* Write(uint32_t address, uint64_t bytes) const {
    return memory->WriteAt(segments.Resolve(address), bytes);
  }
};

// CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV_2D and LSTM. Weights of filters are packed the first
// time that an instruction runs and again only when the memory under them has changed to something
// new, so steady inferences pack and allocate nothing.
class DirectArray {
 public:
  // `host` is borrowed for the life of the array.
  explicit DirectArray(DirectHost* host);
  ~DirectArray();

  // `instruction` is one of the four and has passed CheckInstruction, and its channel records
  // CheckChannelRecords.
  void Run(const Instruction& instruction, const Segments& segments);
  // The same for a CONV_2D together with `add`, which has passed CheckInstruction and CheckChain
  // behind it: each part of the sum is made as soon as there are the bytes for it.
  void RunChained(const Instruction& instruction, const AddInstruction& add,
                  const Segments& segments);

  // How often weights have been packed.
  uint64_t packings() const { return packings_; }

 private:
  // One instruction as it runs, wherever in program memory it is.
  struct Key {
    Instruction instruction;
    Segments segments;
    bool operator==(const Key& other) const;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Prepared;

  template <typename T>
  Prepared* Prepare(const T& instruction, const Key& key);
  template <typename T>
  void RunFilter(const T& instruction, const Key& key, const PairTailOperands& tail);
  template <typename T>
  void RunInSlices(const T& instruction, const Operands& operands, const uint8_t* input,
                   uint8_t* output);
  void RunLstm(const LstmInstruction& instruction, const Segments& segments);
  void MakeRoom(uint64_t bytes);
  bool Holds(const Prepared& prepared) const;
  bool HoldsAgain(Prepared* prepared) const;

  DirectHost& host_;
  OnChipMemory* const memory_ = host_.memory;
  const uint64_t packed_limit_;
  std::unordered_map<Key, std::unique_ptr<Prepared>, KeyHash> prepared_;
  uint64_t prepared_bytes_ = 0;
  uint64_t packings_ = 0;
  LstmParams lstm_;  // of the latest one; keeps its memory
};

// What the vector unit and the on-chip DMA do to memory: docs/isa.md §3 without convolutions and
// streams.
class VectorUnit {
 public:
  // `host` is borrowed for the life of the unit.
  explicit VectorUnit(DirectHost* host);

  // The instruction must have passed CheckInstruction for these segments.
  void Run(const Instruction& instruction, const Segments& segments);

 private:
  struct Execution;  // of one instruction

  DirectHost& host_;
  const RowLoops& loops_;
  SoftmaxTable softmax_table_;  // of the last SOFTMAX
  // The loops of the instruction that runs; kept so that a run allocates nothing.
  Broadcast broadcast_;
  StridedCopy copy_;
};

// ---- For the two files --------------------------------------------------------------------------

inline ByteType TypeOf(uint32_t flags, uint32_t unsigned_flag = kFlagInputUnsigned) {
  return (flags & unsigned_flag) != 0 ? ByteType::kUInt8 : ByteType::kInt8;
}

// What an ADD, MULTIPLY, MAXIMUM, MINIMUM or PRELU computes.
template <PairInstruction T>
PairParams PairParamsOf(const T& i) {
  PairParams params;
  params.type = TypeOf(i.flags);
  if constexpr (requires { i.clamp_min; }) {
    params.input1_zero_point = i.input1_zero_point;
    params.input2_zero_point = i.input2_zero_point;
    params.output_zero_point = i.output_zero_point;
    params.clamp = {i.clamp_min, i.clamp_max};
  }
  if constexpr (requires { i.output_multiplier; }) {
    params.op = PairOp::kMultiply;
    params.output = {i.output_multiplier, i.output_exponent};
  }
  if constexpr (std::is_same_v<T, AddInstruction>) {
    params.op = (i.flags & kFlagSquare) != 0     ? PairOp::kSquaredDifference
                : (i.flags & kFlagSubtract) != 0 ? PairOp::kSubtract
                                                 : PairOp::kAdd;
    params.left_shift = static_cast<int32_t>(i.left_shift);
    params.input1 = {i.input1_multiplier, i.input1_exponent};
    params.input2 = {i.input2_multiplier, i.input2_exponent};
  } else if constexpr (std::is_same_v<T, PreluInstruction>) {
    params.op = PairOp::kPrelu;
    params.input1 = {i.positive_multiplier, i.positive_exponent};
    params.output = {i.negative_multiplier, i.negative_exponent};
  } else if constexpr (!std::is_same_v<T, MultiplyInstruction>) {
    params.op = std::is_same_v<T, MaximumInstruction> ? PairOp::kMaximum : PairOp::kMinimum;
  }
  return params;
}

// The shape of a filter or pooling. Checked operands fit.
template <typename T>
ConvShape ShapeOf(const T& i) {
  ConvShape shape;
  shape.batch = i.batch;
  shape.input_h = i.input_h;
  shape.input_w = i.input_w;
  shape.output_h = i.output_h;
  shape.output_w = i.output_w;
  shape.kernel_h = i.kernel_h;
  shape.kernel_w = i.kernel_w;
  shape.stride_h = i.stride_h;
  shape.stride_w = i.stride_w;
  shape.pad_top = i.pad_top;
  shape.pad_left = i.pad_left;
  if constexpr (FilterInstruction<T>) {
    shape.input_c = i.input_c;
    shape.output_c = i.output_c;
  } else {
    shape.input_c = shape.output_c = i.channels;
  }
  if constexpr (requires { i.dilation_h; }) {
    shape.dilation_h = i.dilation_h;
    shape.dilation_w = i.dilation_w;
  }
  if constexpr (requires { i.groups; }) shape.groups = i.groups;
  return shape;
}

// Part of the output along one axis, and the part of the input that it depends on, from which it
// has `pad` as ConvShape has it. No input: it depends on padding alone.
struct AxisSlice {
  int64_t first_input = 0, inputs = 0, pad = 0;
  bool has_input() const { return inputs > 0; }
};

inline AxisSlice SliceAxis(int64_t first, int64_t count, int64_t stride, int64_t dilation,
                           int64_t kernel, int64_t pad, int64_t inputs) {
  const int64_t begin = first * stride - pad;
  const int64_t end = (first + count - 1) * stride - pad + (kernel - 1) * dilation + 1;
  const int64_t from = std::max<int64_t>(begin, 0);
  return {from, std::min(end, inputs) - from, from - begin};
}

// Of a transposed convolution: output y takes from input (y + pad - tap) / stride.
inline AxisSlice SliceTransposedAxis(int64_t first, int64_t count, int64_t stride, int64_t kernel,
                                     int64_t pad, int64_t inputs) {
  const int64_t from = std::max<int64_t>(first + pad - kernel + 1, 0) / stride;
  const int64_t end = (first + count - 1 + pad) / stride + 1;
  return {from, std::min(end, inputs) - from, first + pad - from * stride};
}

struct SliceOptions {
  ConvShape shape;  // of a pooling: output_c is input_c
  bool is_transposed = false;
  uint64_t pixel_work = 1;    // for one pixel of the output, all channels
  uint64_t work_at_once = 1;  // about so much in a slice
};

// A filter or pooling whose operands are a program's, and so may mean hours of work, as many small
// ones of the same kind: some lines of an image's output, or some pixels of a line. Between them is
// time to stop.
//
// run(shape, input, output, is_plain) for slices, which are of one image and have no batch, until
// `stop`. A plain one has the whole input, and pads that may be negative: only the plainest loops
// take it. Parts of lines that must be put side by side go to host->cells.
template <typename Run>
void ForEachSlice(const SliceOptions& options, DirectHost* host, const uint8_t* input,
                  uint8_t* output, const Run& run) {
  const ConvShape& s = options.shape;
  const auto fitting = [&](uint64_t work, int32_t most) {
    const uint64_t count = options.work_at_once / std::max<uint64_t>(work, 1);
    return static_cast<int32_t>(std::clamp<uint64_t>(count, 1, static_cast<uint64_t>(most)));
  };
  const uint64_t line_work = options.pixel_work * static_cast<uint64_t>(s.output_w);
  const int32_t lines = fitting(line_work, s.output_h);
  const int32_t pixels =
      line_work > options.work_at_once ? fitting(options.pixel_work, s.output_w) : s.output_w;
  const auto slice = [&](bool is_vertical, int32_t first, int32_t count) {
    const int32_t stride = is_vertical ? s.stride_h : s.stride_w;
    const int32_t dilation = is_vertical ? s.dilation_h : s.dilation_w;
    const int32_t kernel = is_vertical ? s.kernel_h : s.kernel_w;
    const int32_t pad = is_vertical ? s.pad_top : s.pad_left;
    const int32_t inputs = is_vertical ? s.input_h : s.input_w;
    return options.is_transposed ? SliceTransposedAxis(first, count, stride, kernel, pad, inputs)
                                 : SliceAxis(first, count, stride, dilation, kernel, pad, inputs);
  };
  const int64_t line_bytes = int64_t{s.input_w} * s.input_c;
  for (int32_t n = 0; n < s.batch; ++n) {
    const uint8_t* const image = input + n * s.input_h * line_bytes;
    for (int32_t y = 0; y < s.output_h; y += std::min(lines, s.output_h - y)) {
      for (int32_t x = 0; x < s.output_w; x += std::min(pixels, s.output_w - x)) {
        if (host->stop()) return;
        ConvShape part = s;
        part.batch = 1;
        part.output_h = std::min(lines, s.output_h - y);
        part.output_w = std::min(pixels, s.output_w - x);
        uint8_t* const to = output + ((n * int64_t{s.output_h} + y) * s.output_w + x) * s.output_c;
        const AxisSlice rows = slice(true, y, part.output_h);
        const AxisSlice columns = slice(false, x, part.output_w);
        const bool is_whole_line = part.output_w == s.output_w;
        const auto row_bytes = static_cast<size_t>(columns.inputs * s.input_c);
        if (!rows.has_input() || !columns.has_input() ||
            (!is_whole_line &&
             !host->cells.Reserve(static_cast<size_t>(rows.inputs) * row_bytes))) {
          const auto shifted = [&](int32_t pad, int64_t first, int32_t stride) {
            const int64_t by = options.is_transposed ? first : -first * stride;
            return static_cast<int32_t>(std::min<int64_t>(pad + by, INT32_MAX));
          };
          part.pad_top = shifted(s.pad_top, y, s.stride_h);
          part.pad_left = shifted(s.pad_left, x, s.stride_w);
          run(part, image, to, true);
          continue;
        }
        part.input_h = static_cast<int32_t>(rows.inputs);
        part.pad_top = static_cast<int32_t>(rows.pad);
        const uint8_t* from = image + rows.first_input * line_bytes;
        if (!is_whole_line) {
          for (int64_t row = 0; row < rows.inputs; ++row) {
            std::memcpy(host->cells.data() + static_cast<size_t>(row) * row_bytes,
                        from + row * line_bytes + columns.first_input * s.input_c, row_bytes);
          }
          from = host->cells.data();
          part.input_w = static_cast<int32_t>(columns.inputs);
          part.pad_left = static_cast<int32_t>(columns.pad);
        }
        run(part, from, to, false);
      }
    }
  }
}

}  // namespace atollrt
