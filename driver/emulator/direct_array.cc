// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/direct_array.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "driver/emulator/slices.h"
#include "driver/emulator/vector_unit.h"
#include "driver/isa/operand_limits.h"
#include "runtime/base/bytes.h"

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

ByteType TypeOf(uint32_t flags, uint32_t unsigned_flag) {
  return (flags & unsigned_flag) != 0 ? ByteType::kUInt8 : ByteType::kInt8;
}

// Checked operands fit.
int32_t Size(uint32_t operand) { return static_cast<int32_t>(operand); }

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

template <typename T>
ConvShape MakeShape(const T& i, uint32_t groups) {
  ConvShape shape{.batch = Size(i.batch),
                  .input_h = Size(i.input_h),
                  .input_w = Size(i.input_w),
                  .input_c = Size(i.input_c),
                  .output_h = Size(i.output_h),
                  .output_w = Size(i.output_w),
                  .output_c = Size(i.output_c),
                  .kernel_h = Size(i.kernel_h),
                  .kernel_w = Size(i.kernel_w),
                  .stride_h = Size(i.stride_h),
                  .stride_w = Size(i.stride_w),
                  .pad_top = Size(i.pad_top),
                  .pad_left = Size(i.pad_left),
                  .groups = Size(groups)};
  if constexpr (requires { i.dilation_h; }) {
    shape.dilation_h = Size(i.dilation_h);
    shape.dilation_w = Size(i.dilation_w);
  }
  return shape;
}

// Everything that the instructions, and the params of their kernels, have in common.
template <typename Params, typename T>
Params MakeParams(const T& i, uint32_t groups, const uint8_t* weights, const uint8_t* records) {
  return Params{.shape = MakeShape(i, groups),
                .input_type = TypeOf(i.flags, kFlagInputUnsigned),
                .weight_type = TypeOf(i.flags, kFlagWeightsUnsigned),
                .input_zero_point = i.input_zero_point,
                .weight_zero_point = i.weight_zero_point,
                .weights = weights,
                .output = MakeOutputStage(records, i.output_c, i.flags, i.output_zero_point,
                                          {i.clamp_min, i.clamp_max})};
}

// What packed weights take, roughly but not less: channels are padded to whole vectors, weights of
// one channel to whole words, and each may take two bytes.
uint64_t PackedBytes(uint64_t groups, uint64_t group_channels, uint64_t channel_weights) {
  return groups * AlignUp(group_channels, 32) * (2 * AlignUp(channel_weights, 4) + 32);
}

// UINT64_MAX for windows that are spread so far that no kernel should be prepared for them.
template <typename T>
uint64_t PackedConvolutionBytes(const T& i, uint64_t groups, uint64_t weight_bytes) {
  const bool compact =
      WindowReach(i.output_h, i.stride_h, i.kernel_h, i.dilation_h) <= kExtentMax &&
      WindowReach(i.output_w, i.stride_w, i.kernel_w, i.dilation_w) <= kExtentMax;
  return compact ? PackedBytes(groups, i.output_c / groups, weight_bytes / i.output_c) : UINT64_MAX;
}

// How each of the instructions maps to its kernel.
struct Conv2DMapping {
  static constexpr bool kIsTransposed = false;
  using Kernel = Conv2D;
  using Params = Conv2DParams;
  static constexpr auto kReference = ReferenceConv2D;
  static uint64_t WeightBytes(const Conv2DInstruction& i) {
    return uint64_t{i.output_c} * i.kernel_h * i.kernel_w * (i.input_c / i.groups);
  }
  static uint32_t Groups(const Conv2DInstruction& i) { return i.groups; }
  static uint64_t PackedBytes(const Conv2DInstruction& i) {
    return PackedConvolutionBytes(i, i.groups, WeightBytes(i));
  }
  static Result<Kernel> Prepare(const Params& params, CpuFeatures features) {
    return Conv2D::Prepare(params, features);
  }
};
struct DepthwiseMapping {
  static constexpr bool kIsTransposed = false;
  using Kernel = DepthwiseConv2D;
  using Params = DepthwiseConv2DParams;
  static constexpr auto kReference = ReferenceDepthwiseConv2D;
  static uint64_t WeightBytes(const DepthwiseConv2DInstruction& i) {
    return uint64_t{i.kernel_h} * i.kernel_w * i.output_c;
  }
  static uint32_t Groups(const DepthwiseConv2DInstruction&) { return 1; }
  // Cells of 16 channels and of up to four rows of taps, for up to three more output rows, whose
  // weights lie further down, and for each part of weights that do not fit a byte. A line of
  // padding is as deep as the output and as wide as the input, or what windows see of it.
  static uint64_t PackedBytes(const DepthwiseConv2DInstruction& i) {
    constexpr uint64_t kCellChannels = 16, kCellBytes = 64 + 16, kParts = 3, kSlack = 65;
    const uint64_t cells = DivideRoundingUp<uint64_t>(i.output_c, kCellChannels) *
                           (uint64_t{i.kernel_h} + 3) * i.kernel_w;
    const uint64_t columns = std::min<uint64_t>(
        i.input_w, WindowReach(i.output_w, i.stride_w, i.kernel_w, i.dilation_w) + kSlack);
    return SaturatingSum(PackedConvolutionBytes(i, 1, WeightBytes(i)),
                         cells * kParts * kCellBytes + columns * i.output_c);
  }
  static Result<Kernel> Prepare(const Params& params, CpuFeatures features) {
    return DepthwiseConv2D::Prepare(params, features);
  }
};
struct TransposeMapping {
  static constexpr bool kIsTransposed = true;
  using Kernel = TransposeConv<Conv2D, Conv2DParams>;
  using Params = Conv2DParams;
  static constexpr auto kReference = ReferenceTransposeConv;
  static uint64_t WeightBytes(const TransposeConv2DInstruction& i) {
    return uint64_t{i.output_c} * i.kernel_h * i.kernel_w * i.input_c;
  }
  static uint32_t Groups(const TransposeConv2DInstruction&) { return 1; }
  // Of all phases.
  static uint64_t PackedBytes(const TransposeConv2DInstruction& i) {
    const ConvShape shape = MakeShape(i, 1);
    if (!SplitsWell(shape)) return UINT64_MAX;
    const auto rows =
        SplitTransposeConv({shape.output_h, shape.kernel_h, shape.stride_h, shape.pad_top});
    const auto columns =
        SplitTransposeConv({shape.output_w, shape.kernel_w, shape.stride_w, shape.pad_left});
    uint64_t bytes = 0;
    for (const TransposePhase& row : rows) {
      for (const TransposePhase& column : columns) {
        const uint64_t taps = uint64_t{static_cast<uint32_t>(row.taps)} * column.taps;
        bytes += atollrt::PackedBytes(1, i.output_c, taps * i.input_c);
      }
    }
    return bytes;
  }
  static Result<Kernel> Prepare(const Params& params, CpuFeatures features) {
    const uint8_t zero_weight = static_cast<uint8_t>(params.weight_zero_point);
    return Kernel::Prepare(params, {.zero_weight = zero_weight}, features);
  }
};

// Calls visitor(operands, mapping).
template <typename Visitor>
auto VisitFilter(const Instruction& instruction, const Visitor& visitor) {
  if (const auto* conv = std::get_if<Conv2DInstruction>(&instruction)) {
    return visitor(*conv, Conv2DMapping());
  }
  if (const auto* depthwise = std::get_if<DepthwiseConv2DInstruction>(&instruction)) {
    return visitor(*depthwise, DepthwiseMapping());
  }
  const auto* transposed = std::get_if<TransposeConv2DInstruction>(&instruction);
  ATOLL_CHECK(transposed != nullptr);
  return visitor(*transposed, TransposeMapping());
}

}  // namespace

struct DirectArray::Prepared {
  std::variant<std::monostate, Conv2D, DepthwiseConv2D, TransposeMapping::Kernel> kernel;
  uint64_t time = 0;  // of the memory, when it was read
  Range weights, records;
  uint64_t packed_bytes = 0;
  // The bytes of both ranges, of weights that were overwritten once: models that take turns on the
  // device bring the same ones again and again, and comparing is quicker than packing.
  std::vector<uint8_t> source;
};

// Of where it reads and writes, which tells most filters of a device from each other.
size_t DirectArray::KeyHash::operator()(const Key& key) const {
  return VisitFilter(key.instruction, [&](const auto& i, auto) {
    uint64_t hash = 0;
    for (const uint32_t word : {key.segments.parameter_base, key.segments.activation_base,
                                i.weight_address, i.input_address, i.output_address}) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u + (hash >> 29);
    }
    return static_cast<size_t>(hash);
  });
}

DirectArray::DirectArray(OnChipMemory* memory, CpuFeatures features, ThreadPool* pool,
                         const WorkLimits& limits)
    : memory_(memory),
      features_(features),
      pool_(pool),
      limits_(limits),
      combine_pairs_(ChoosePairs(features)),
      packed_limit_(std::max(kPackedPerMemory * memory->size(), kPackedMin)) {}

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
  const Range& w = prepared->weights;
  const Range& r = prepared->records;
  const uint8_t* source = prepared->source.data();
  if (std::memcmp(memory_->ReadAt(w.address, w.size_bytes), source, w.size_bytes) != 0 ||
      std::memcmp(memory_->ReadAt(r.address, r.size_bytes), source + w.size_bytes, r.size_bytes) !=
          0) {
    return false;
  }
  prepared->time = memory_->now();
  return true;
}

// Forgets what memory no longer agrees with and, if that is not enough, everything: then there are
// more weights in turn than a cache can help with.
void DirectArray::MakeRoom(uint64_t bytes) {
  if (prepared_bytes_ + bytes <= packed_limit_) return;
  for (auto it = prepared_.begin(); it != prepared_.end();) {
    if (Holds(*it->second)) {
      ++it;
    } else {
      prepared_bytes_ -= it->second->packed_bytes;
      it = prepared_.erase(it);
    }
  }
  if (prepared_bytes_ + bytes <= packed_limit_) return;
  prepared_.clear();
  prepared_bytes_ = 0;
}

// Packed weights that agree with memory, or nullptr if the instruction should run as plain loops.
DirectArray::Prepared* DirectArray::Prepare(const Key& key) {
  bool overwritten = false;
  if (const auto found = prepared_.find(key); found != prepared_.end()) {
    Prepared* const prepared = found->second.get();
    if (Holds(*prepared) || HoldsAgain(prepared)) return prepared;
    overwritten = true;
    prepared_bytes_ -= found->second->packed_bytes;
    prepared_.erase(found);
  }
  const uint64_t packed_bytes = VisitFilter(key.instruction, [](const auto& i, auto mapping) {
    return decltype(mapping)::PackedBytes(i);
  });
  if (packed_bytes > packed_limit_) return nullptr;
  MakeRoom(packed_bytes);
  ++packings_;
  auto prepared = std::make_unique<Prepared>();
  prepared->packed_bytes = packed_bytes;
  prepared->time = memory_->now();
  const bool packed = VisitFilter(key.instruction, [&](const auto& i, auto mapping) {
    using Mapping = decltype(mapping);
    prepared->weights = {key.segments.Resolve(i.weight_address), Mapping::WeightBytes(i)};
    prepared->records = {key.segments.Resolve(i.channel_address),
                         uint64_t{i.output_c} * kChannelRecordBytes};
    auto kernel = Mapping::Prepare(
        MakeParams<typename Mapping::Params>(
            i, Mapping::Groups(i),
            memory_->ReadAt(prepared->weights.address, prepared->weights.size_bytes),
            memory_->ReadAt(prepared->records.address, prepared->records.size_bytes)),
        features_);
    if (!kernel.ok()) return false;
    prepared->kernel = *std::move(kernel);
    return true;
  });
  if (!packed) return nullptr;
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
  Run(instruction, segments, {});
}

void DirectArray::RunChained(const Instruction& instruction, const AddInstruction& add,
                             const Segments& segments) {
  const MemoryAccess made = AccessesOf(instruction).back();
  const bool is_second = segments.Resolve(add.input1_address) != segments.Resolve(made.address);
  const uint32_t other = is_second ? add.input1_address : add.input2_address;
  const PairTail tail{
      .combine = combine_pairs_, .params = PairParamsOf(add), .is_second = is_second};
  Run(instruction, segments,
      {.tail = &tail,
       .other = memory_->ReadAt(segments.Resolve(other), made.bytes),
       .y = memory_->WriteAt(segments.Resolve(add.output_address), made.bytes)});
}

// Of kernels that are packed for each slice anew, unless it has the shape of the last one, and as
// plain loops where they cannot be.
template <typename Mapping, typename T>
void DirectArray::RunInSlices(const T& i, const Segments& segments, const uint8_t* input,
                              uint8_t* output) {
  using Kernel = typename Mapping::Kernel;
  auto params = MakeParams<typename Mapping::Params>(
      i, Mapping::Groups(i),
      memory_->ReadAt(segments.Resolve(i.weight_address), Mapping::WeightBytes(i)),
      memory_->ReadAt(segments.Resolve(i.channel_address),
                      uint64_t{i.output_c} * kChannelRecordBytes));
  const bool packs = Mapping::PackedBytes(i) <= packed_limit_;
  std::optional<Kernel> kernel;
  ConvShape kernel_shape;
  ForEachSlice(
      {.shape = params.shape,
       .is_transposed = Mapping::kIsTransposed,
       .pixel_work = Mapping::WeightBytes(i),
       .work_at_once = packs ? limits_.filter_slice : limits_.plain_slice},
      stop_, input, output, &cells_,
      [&](const ConvShape& shape, const uint8_t* from, uint8_t* to, bool is_plain) {
        params.shape = shape;
        const bool may_pack = packs && !is_plain && (!Mapping::kIsTransposed || SplitsWell(shape));
        if (may_pack && (!kernel.has_value() || kernel_shape != shape)) {
          kernel.reset();
          kernel_shape = shape;
          ++packings_;
          Result<Kernel> prepared = Mapping::Prepare(params, features_);
          if (prepared.ok()) kernel = *std::move(prepared);
        }
        if (may_pack && kernel.has_value() &&
            scratch_.Reserve(kernel->ScratchBytes(pool_ != nullptr ? pool_->threads() : 1))) {
          kernel->Run(from, to, scratch_.data(), pool_);
        } else {
          Mapping::kReference(params, from, to);
        }
      });
}

// A tail needs a CONV_2D.
void DirectArray::Run(const Instruction& instruction, const Segments& segments,
                      const PairTailOperands& tail) {
  VisitFilter(instruction, [&](const auto& i, auto mapping) {
    using Mapping = decltype(mapping);
    const uint64_t work =
        SaturatingProduct({i.batch, i.output_h, i.output_w, Mapping::WeightBytes(i)});
    const bool is_long =
        work > (i.output_c < kFewChannels ? limits_.long_narrow_filter : limits_.long_filter);
    const Prepared* prepared = is_long ? nullptr : Prepare({instruction, segments});
    const uint64_t input_bytes = uint64_t{i.batch} * i.input_h * i.input_w * i.input_c;
    const uint64_t output_bytes = uint64_t{i.batch} * i.output_h * i.output_w * i.output_c;
    const uint8_t* input = memory_->ReadAt(segments.Resolve(i.input_address), input_bytes);
    uint8_t* output = memory_->WriteAt(segments.Resolve(i.output_address), output_bytes);
    if (prepared != nullptr) {
      const auto& kernel = std::get<typename Mapping::Kernel>(prepared->kernel);
      const size_t needed = kernel.ScratchBytes(pool_ != nullptr ? pool_->threads() : 1);
      if (scratch_.Reserve(needed)) {
        if constexpr (std::is_same_v<Mapping, Conv2DMapping>) {
          kernel.Run(input, output, scratch_.data(), pool_, tail);
        } else {
          kernel.Run(input, output, scratch_.data(), pool_);
        }
        return;
      }
    }
    RunInSlices<Mapping>(i, segments, input, output);
    if (tail.tail != nullptr) {
      tail.tail->Run(output, tail.other, tail.y, static_cast<int64_t>(output_bytes));
    }
  });
}

void DirectArray::RunLstm(const LstmInstruction& i, const Segments& segments) {
  LstmParams& p = lstm_;
  p.batch = Size(i.batch);
  p.steps = Size(i.steps);
  p.inputs = Size(i.inputs);
  p.units = Size(i.units);
  p.layout = i.time_major != 0 ? LstmLayout::kTimeMajor : LstmLayout::kBatchMajor;
  p.cell_integer_bits = Size(i.cell_integer_bits);
  p.cell_clip = Size(i.cell_clip);
  p.hidden_multiplier = {i.hidden_multiplier, i.hidden_exponent};
  p.hidden_zero_point = i.hidden_zero_point;

  const uint64_t units = i.units;
  const uint64_t weight_bytes = kLstmGates * units * (i.inputs + units);
  const auto* weights = reinterpret_cast<const int8_t*>(
      memory_->ReadAt(segments.Resolve(i.weight_address), weight_bytes));
  const uint8_t* record = memory_->ReadAt(segments.Resolve(i.channel_address),
                                          2 * kLstmGates * units * kChannelRecordBytes);
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
  ATOLL_CHECK(scratch_.Reserve(LstmScratchBytes(p)));
  const uint64_t rows = uint64_t{i.batch} * i.steps;
  const uint8_t* input = memory_->ReadAt(segments.Resolve(i.input_address), rows * i.inputs);
  uint8_t* hidden = memory_->WriteAt(segments.Resolve(i.hidden_address), i.batch * units);
  uint8_t* cell = memory_->WriteAt(segments.Resolve(i.cell_address), 2 * i.batch * units);
  uint8_t* output = memory_->WriteAt(segments.Resolve(i.output_address), rows * units);
  // Some steps of one sequence, or one step of some sequences, as they lie in a row.
  const auto run = [&](uint64_t sequence, uint64_t sequences, uint64_t row, uint64_t steps) {
    p.batch = static_cast<int32_t>(sequences);
    p.steps = static_cast<int32_t>(steps);
    Lstm(p, reinterpret_cast<const int8_t*>(input) + row * i.inputs,
         reinterpret_cast<int8_t*>(hidden) + sequence * units, cell + 2 * sequence * units,
         reinterpret_cast<int8_t*>(output) + row * units, scratch_.data());
  };
  const uint64_t at_once = limits_.lstm_slice / weight_bytes + 1;
  if (rows <= at_once) return run(0, i.batch, 0, i.steps);
  if (p.layout == LstmLayout::kTimeMajor) {
    for (uint64_t step = 0; step < i.steps; ++step) {
      for (uint64_t b = 0; b < i.batch && !stop_(); b += at_once) {
        run(b, std::min<uint64_t>(at_once, i.batch - b), step * i.batch + b, 1);
      }
    }
  } else {
    for (uint64_t b = 0; b < i.batch; ++b) {
      for (uint64_t step = 0; step < i.steps && !stop_(); step += at_once) {
        run(b, 1, b * i.steps + step, std::min<uint64_t>(at_once, i.steps - step));
      }
    }
  }
}

}  // namespace atollrt
