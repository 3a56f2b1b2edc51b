// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "driver/emulator/direct_face.h"
#include "runtime/base/bytes.h"
#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/depthwise/depthwise_conv2d.h"
#include "runtime/kernels/transpose_conv.h"

namespace atollrt {
namespace {

// Host memory that a program can make us use is bounded; what goes beyond runs as plain loops,
// which need next to none. Sane programs stay far below.
//
// Packed weights may take this many times the on-chip memory, which leaves room for several
// instructions that share their weights, as tiles of one layer do.
constexpr uint64_t kPackedPerMemory = 8;
constexpr uint64_t kPackedMin = 16 << 20;  // of a small memory
// Rows or columns from the first to the last that an image's windows touch.
constexpr uint64_t kExtentMax = 1 << 24;

constexpr uint32_t kFewChannels = 8;

// A range of on-chip memory.
struct Range {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
};

OutputChannel ReadChannelRecord(const uint8_t* record, RequantizeMode mode) {
  OutputChannel channel;
  channel.bias = LoadLittleEndian<int32_t>(record);
  if (mode == RequantizeMode::kDouble) {
    channel.scale = LoadLittleEndian<double>(record + 8);
  } else {
    channel.multiplier = {LoadLittleEndian<int32_t>(record + 4),
                          LoadLittleEndian<int32_t>(record + 8)};
  }
  return channel;
}

OutputStage MakeOutputStage(const uint8_t* records, uint32_t channels, uint32_t flags,
                            int32_t zero_point, ClampRange clamp) {
  OutputStage stage{
      .mode = (flags & kFlagDouble) != 0 ? RequantizeMode::kDouble : RequantizeMode::kFixedPoint,
      .zero_point = zero_point,
      .clamp = clamp,
      .channels = std::vector<OutputChannel>(channels)};
  for (OutputChannel& channel : stage.channels) {
    channel = ReadChannelRecord(records, stage.mode);
    records += kChannelRecordBytes;
  }
  return stage;
}

// Everything that the instructions, and the params of their kernels, have in common.
template <typename Params, typename T>
Params MakeParams(const T& i, const uint8_t* weights, const uint8_t* records) {
  return Params{.shape = ShapeOf(i),
                .input_type = TypeOf(i.flags),
                .weight_type = TypeOf(i.flags, kFlagWeightsUnsigned),
                .input_zero_point = i.input_zero_point,
                .weight_zero_point = i.weight_zero_point,
                .weights = weights,
                .output = MakeOutputStage(records, i.output_c, i.flags, i.output_zero_point,
                                          {i.clamp_min, i.clamp_max})};
}

template <typename T>
uint32_t GroupsOf(const T& i) {
  if constexpr (requires { i.groups; }) return i.groups;
  return 1;
}

template <typename T>
uint64_t RecordBytes(const T& i) {
  return uint64_t{i.output_c} * kChannelRecordBytes;
}

// The kernel of an instruction.
template <typename T>
struct KernelFor;
template <>
struct KernelFor<Conv2DInstruction> {
  using Kernel = Conv2D;
  using Params = Conv2DParams;
  static constexpr auto kReference = ReferenceConv2D;
};
template <>
struct KernelFor<DepthwiseConv2DInstruction> {
  using Kernel = DepthwiseConv2D;
  using Params = DepthwiseConv2DParams;
  static constexpr auto kReference = ReferenceDepthwiseConv2D;
};
template <>
struct KernelFor<TransposeConv2DInstruction> {
  using Kernel = TransposeConv<Conv2D, Conv2DParams>;
  using Params = Conv2DParams;
  static constexpr auto kReference = ReferenceTransposeConv;
};
template <typename T>
constexpr bool kIsTransposed = std::is_same_v<T, TransposeConv2DInstruction>;

template <typename T>
auto PrepareKernel(const typename KernelFor<T>::Params& params, CpuFeatures features) {
  using Kernel = typename KernelFor<T>::Kernel;
  if constexpr (kIsTransposed<T>) {
    const uint8_t zero_weight = static_cast<uint8_t>(params.weight_zero_point);
    return Kernel::Prepare(params, {.zero_weight = zero_weight}, features);
  } else {
    return Kernel::Prepare(params, features);
  }
}

// What packed weights take, roughly but not less: channels are padded to whole vectors, weights of
// one channel to whole words, and each may take two bytes.
uint64_t PaddedBytes(uint64_t groups, uint64_t group_channels, uint64_t channel_weights) {
  return groups * AlignUp(group_channels, 32) * (2 * AlignUp(channel_weights, 4) + 32);
}

// UINT64_MAX for windows that are spread so far that no kernel should be prepared for them.
template <typename T>
uint64_t PackedConvolutionBytes(const T& i) {
  const uint64_t groups = GroupsOf(i);
  const bool compact =
      WindowReach(i.output_h, i.stride_h, i.kernel_h, i.dilation_h) <= kExtentMax &&
      WindowReach(i.output_w, i.stride_w, i.kernel_w, i.dilation_w) <= kExtentMax;
  return compact ? PaddedBytes(groups, i.output_c / groups, WeightBytes(i) / i.output_c)
                 : UINT64_MAX;
}

uint64_t PackedBytes(const Conv2DInstruction& i) { return PackedConvolutionBytes(i); }

// Cells of 16 channels and of up to four rows of taps, for up to three more output rows, whose
// weights lie further down, and for each part of weights that do not fit a byte. A line of padding
// is as deep as the output and as wide as the input, or what windows see of it.
uint64_t PackedBytes(const DepthwiseConv2DInstruction& i) {
  constexpr uint64_t kCellChannels = 16, kCellBytes = 64 + 16, kParts = 3, kSlack = 65;
  const uint64_t cells = DivideRoundingUp<uint64_t>(i.output_c, kCellChannels) *
                         (uint64_t{i.kernel_h} + 3) * i.kernel_w;
  const uint64_t columns = std::min<uint64_t>(
      i.input_w, WindowReach(i.output_w, i.stride_w, i.kernel_w, i.dilation_w) + kSlack);
  return SaturatingSum(PackedConvolutionBytes(i),
                       cells * kParts * kCellBytes + columns * i.output_c);
}

// Of all phases.
uint64_t PackedBytes(const TransposeConv2DInstruction& i) {
  const ConvShape s = ShapeOf(i);
  if (!SplitsWell(s)) return UINT64_MAX;
  const auto rows = SplitTransposeConv({s.output_h, s.kernel_h, s.stride_h, s.pad_top});
  const auto columns = SplitTransposeConv({s.output_w, s.kernel_w, s.stride_w, s.pad_left});
  uint64_t bytes = 0;
  for (const TransposePhase& row : rows) {
    for (const TransposePhase& column : columns) {
      const uint64_t taps = uint64_t{static_cast<uint32_t>(row.taps)} * column.taps;
      bytes += PaddedBytes(1, i.output_c, taps * i.input_c);
    }
  }
  return bytes;
}

}  // namespace

struct DirectArray::Prepared {
  std::variant<std::monostate, Conv2D, DepthwiseConv2D,
               KernelFor<TransposeConv2DInstruction>::Kernel>
      kernel;
  uint64_t time = 0;  // of the memory, when it was read
  Range weights, records;
  uint64_t packed_bytes = 0;
  // The bytes of both ranges, of weights that were overwritten once: models that take turns on the
  // device bring the same ones again and again, and comparing is quicker than packing.
  std::vector<uint8_t> source;
};

// Of where it reads and writes, which tells most filters of a device from each other.
size_t DirectArray::KeyHash::operator()(const Key& key) const {
  return std::visit(
      [&](const auto& i) {
        uint64_t hash = 0;
        if constexpr (requires { i.weight_address; }) {
          for (const uint32_t word : {key.segments.parameter_base, key.segments.activation_base,
                                      i.weight_address, i.input_address, i.output_address}) {
            hash = (hash ^ word) * 0x9E3779B97F4A7C15u + (hash >> 29);
          }
        }
        return static_cast<size_t>(hash);
      },
      key.instruction);
}

// As words: comparing member by member, for each kind of instruction, would be 3.5 kB of code.
bool DirectArray::Key::operator==(const Key& other) const {
  return segments == other.segments && Encode(instruction) == Encode(other.instruction);
}

DirectArray::DirectArray(DirectHost* host)
    : host_(*host), packed_limit_(std::max(kPackedPerMemory * memory_->size(), kPackedMin)) {}

DirectArray::~DirectArray() = default;

bool DirectArray::Holds(const Prepared& prepared) const {
  const Range& w = prepared.weights;
  const Range& r = prepared.records;
  return !memory_->ChangedSince(prepared.time, w.address, w.size_bytes) &&
         !memory_->ChangedSince(prepared.time, r.address, r.size_bytes);
}

// Whether memory changed since, but back to what it was.
bool DirectArray::HoldsAgain(Prepared* prepared) const {
  if (prepared->source.empty()) return false;
  const uint8_t* source = prepared->source.data();
  for (const Range& range : {prepared->weights, prepared->records}) {
    const uint8_t* bytes = memory_->ReadAt(range.address, range.size_bytes);
    if (std::memcmp(bytes, source, range.size_bytes) != 0) return false;
    source += range.size_bytes;
  }
  prepared->time = memory_->now();
  return true;
}

// Forgets what memory no longer agrees with and, if that is not enough, everything: then there are
// more weights in turn than a cache can help with.
void DirectArray::MakeRoom(uint64_t bytes) {
  if (prepared_bytes_ + bytes <= packed_limit_) return;
  std::erase_if(prepared_, [&](const auto& entry) {
    if (Holds(*entry.second)) return false;
    prepared_bytes_ -= entry.second->packed_bytes;
    return true;
  });
  if (prepared_bytes_ + bytes <= packed_limit_) return;
  prepared_.clear();
  prepared_bytes_ = 0;
}

// Packed weights that agree with memory, or nullptr if the instruction should run as plain loops.
template <typename T>
DirectArray::Prepared* DirectArray::Prepare(const T& i, const Key& key) {
  bool overwritten = false;
  if (const auto found = prepared_.find(key); found != prepared_.end()) {
    Prepared* const prepared = found->second.get();
    if (Holds(*prepared) || HoldsAgain(prepared)) return prepared;
    overwritten = true;
    prepared_bytes_ -= prepared->packed_bytes;
    prepared_.erase(found);
  }
  const uint64_t packed_bytes = PackedBytes(i);
  if (packed_bytes > packed_limit_) return nullptr;
  MakeRoom(packed_bytes);
  ++packings_;
  auto prepared = std::make_unique<Prepared>();
  prepared->packed_bytes = packed_bytes;
  prepared->time = memory_->now();
  prepared->weights = {key.segments.Resolve(i.weight_address), WeightBytes(i)};
  prepared->records = {key.segments.Resolve(i.channel_address), RecordBytes(i)};
  const Operands operands{memory_, key.segments};
  auto kernel = PrepareKernel<T>(
      MakeParams<typename KernelFor<T>::Params>(i, operands.Read(i.weight_address, WeightBytes(i)),
                                                operands.Read(i.channel_address, RecordBytes(i))),
      host_.features);
  if (!kernel.ok()) return nullptr;
  prepared->kernel = *std::move(kernel);
  if (overwritten) {
    for (const Range& range : {prepared->weights, prepared->records}) {
      const uint8_t* bytes = memory_->ReadAt(range.address, range.size_bytes);
      prepared->source.insert(prepared->source.end(), bytes, bytes + range.size_bytes);
    }
    prepared->packed_bytes += prepared->source.size();
  }
  prepared_bytes_ += prepared->packed_bytes;
  return prepared_.emplace(key, std::move(prepared)).first->second.get();
}

void DirectArray::Run(const Instruction& instruction, const Segments& segments) {
  std::visit(
      [&](const auto& i) {
        using T = std::decay_t<decltype(i)>;
        if constexpr (FilterInstruction<T>) {
          RunFilter(i, {instruction, segments}, {});
        } else if constexpr (std::is_same_v<T, LstmInstruction>) {
          RunLstm(i, segments);
        } else {
          ATOLL_CHECK(false);
        }
      },
      instruction);
}

void DirectArray::RunChained(const Instruction& instruction, const AddInstruction& add,
                             const Segments& segments) {
  const MemoryAccess made = AccessesOf(instruction).back();
  const bool is_second = segments.Resolve(add.input1_address) != segments.Resolve(made.address);
  const uint32_t other = is_second ? add.input1_address : add.input2_address;
  const PairTail tail{
      .combine = host_.combine_pairs, .params = PairParamsOf(add), .is_second = is_second};
  const Operands operands{memory_, segments};
  RunFilter(std::get<Conv2DInstruction>(instruction), {instruction, segments},
            {.tail = &tail,
             .other = operands.Read(other, made.bytes),
             .y = operands.Write(add.output_address, made.bytes)});
}

// Of kernels that are packed for each slice anew, unless it has the shape of the last one, and as
// plain loops where they cannot be.
template <typename T>
void DirectArray::RunInSlices(const T& i, const Operands& operands, const uint8_t* input,
                              uint8_t* output) {
  using Kernel = typename KernelFor<T>::Kernel;
  auto params =
      MakeParams<typename KernelFor<T>::Params>(i, operands.Read(i.weight_address, WeightBytes(i)),
                                                operands.Read(i.channel_address, RecordBytes(i)));
  const bool packs = PackedBytes(i) <= packed_limit_;
  std::optional<Kernel> kernel;
  ConvShape kernel_shape;
  ForEachSlice({.shape = params.shape,
                .is_transposed = kIsTransposed<T>,
                .pixel_work = WeightBytes(i),
                .work_at_once = packs ? host_.limits.filter_slice : host_.limits.plain_slice},
               &host_, input, output,
               [&](const ConvShape& shape, const uint8_t* from, uint8_t* to, bool is_plain) {
                 params.shape = shape;
                 const bool may_pack =
                     packs && !is_plain && (!kIsTransposed<T> || SplitsWell(shape));
                 if (may_pack && (!kernel.has_value() || kernel_shape != shape)) {
                   kernel.reset();
                   kernel_shape = shape;
                   ++packings_;
                   Result<Kernel> prepared = PrepareKernel<T>(params, host_.features);
                   if (prepared.ok()) kernel = *std::move(prepared);
                 }
                 if (may_pack && kernel.has_value() &&
                     host_.scratch.Reserve(kernel->ScratchBytes(host_.pool->threads()))) {
                   kernel->Run(from, to, host_.scratch.data(), host_.pool);
                 } else {
                   KernelFor<T>::kReference(params, from, to);
                 }
               });
}

// A tail needs a CONV_2D.
template <typename T>
void DirectArray::RunFilter(const T& i, const Key& key, const PairTailOperands& tail) {
  const uint64_t work = SaturatingProduct({i.batch, i.output_h, i.output_w, WeightBytes(i)});
  const WorkLimits& limits = host_.limits;
  const bool is_long =
      work > (i.output_c < kFewChannels ? limits.long_narrow_filter : limits.long_filter);
  const Prepared* prepared = is_long ? nullptr : Prepare(i, key);
  const Operands operands{memory_, key.segments};
  const uint64_t output_bytes = uint64_t{i.batch} * i.output_h * i.output_w * i.output_c;
  const uint8_t* input =
      operands.Read(i.input_address, uint64_t{i.batch} * i.input_h * i.input_w * i.input_c);
  uint8_t* output = operands.Write(i.output_address, output_bytes);
  if (prepared != nullptr) {
    const auto& kernel = std::get<typename KernelFor<T>::Kernel>(prepared->kernel);
    if (host_.scratch.Reserve(kernel.ScratchBytes(host_.pool->threads()))) {
      if constexpr (std::is_same_v<T, Conv2DInstruction>) {
        kernel.Run(input, output, host_.scratch.data(), host_.pool, tail);
      } else {
        kernel.Run(input, output, host_.scratch.data(), host_.pool);
      }
      return;
    }
  }
  RunInSlices(i, operands, input, output);
  if (tail.tail != nullptr) {
    tail.tail->Run(output, tail.other, tail.y, static_cast<int64_t>(output_bytes));
  }
}

void DirectArray::RunLstm(const LstmInstruction& i, const Segments& segments) {
  LstmParams& p = lstm_;
  p.batch = i.batch;
  p.steps = i.steps;
  p.inputs = i.inputs;
  p.units = i.units;
  p.layout = i.time_major != 0 ? LstmLayout::kTimeMajor : LstmLayout::kBatchMajor;
  p.cell_integer_bits = i.cell_integer_bits;
  p.cell_clip = i.cell_clip;
  p.hidden_multiplier = {i.hidden_multiplier, i.hidden_exponent};
  p.hidden_zero_point = i.hidden_zero_point;

  const uint64_t units = i.units;
  const uint64_t weight_bytes = kLstmGates * units * (i.inputs + units);
  const Operands operands{memory_, segments};
  const auto* weights =
      reinterpret_cast<const int8_t*>(operands.Read(i.weight_address, weight_bytes));
  const uint8_t* record =
      operands.Read(i.channel_address, 2 * kLstmGates * units * kChannelRecordBytes);
  const auto take = [&](uint64_t columns, LstmProduct* product) {
    for (const int8_t*& gate : product->weights) {
      gate = weights;
      weights += units * columns;
    }
    product->channels.resize(kLstmGates * units);
    for (OutputChannel& channel : product->channels) {
      channel = ReadChannelRecord(record, RequantizeMode::kFixedPoint);
      record += kChannelRecordBytes;
    }
  };
  take(i.inputs, &p.input);
  take(units, &p.recurrent);

  // A few bytes for each row of the weights, which are on chip.
  ATOLL_CHECK(host_.scratch.Reserve(LstmScratchBytes(p)));
  const uint64_t rows = uint64_t{i.batch} * i.steps;
  const uint8_t* input = operands.Read(i.input_address, rows * i.inputs);
  uint8_t* hidden = operands.Write(i.hidden_address, i.batch * units);
  uint8_t* cell = operands.Write(i.cell_address, 2 * i.batch * units);
  uint8_t* output = operands.Write(i.output_address, rows * units);
  // Some steps of one sequence, or one step of some sequences, as they lie in a row.
  const auto run = [&](uint64_t sequence, uint64_t sequences, uint64_t row, uint64_t steps) {
    p.batch = static_cast<int32_t>(sequences);
    p.steps = static_cast<int32_t>(steps);
    Lstm(p, reinterpret_cast<const int8_t*>(input) + row * i.inputs,
         reinterpret_cast<int8_t*>(hidden) + sequence * units, cell + 2 * sequence * units,
         reinterpret_cast<int8_t*>(output) + row * units, host_.scratch.data());
  };
  const uint64_t at_once = host_.limits.lstm_slice / weight_bytes + 1;
  if (rows <= at_once) return run(0, i.batch, 0, i.steps);
  if (p.layout == LstmLayout::kTimeMajor) {
    for (uint64_t step = 0; step < i.steps; ++step) {
      for (uint64_t b = 0; b < i.batch && !host_.stop(); b += at_once) {
        run(b, std::min<uint64_t>(at_once, i.batch - b), step * i.batch + b, 1);
      }
    }
  } else {
    for (uint64_t b = 0; b < i.batch; ++b) {
      for (uint64_t step = 0; step < i.steps && !host_.stop(); step += at_once) {
        run(b, 1, b * i.steps + step, std::min<uint64_t>(at_once, i.steps - step));
      }
    }
  }
}

}  // namespace atollrt
