// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/check.h"

#include <array>
#include <cmath>
#include <initializer_list>

#include "runtime/base/bytes.h"
#include "runtime/kernels/quantization.h"

namespace atollrt {
namespace {

constexpr uint32_t kSizeMax = 0x7FFFFFFF;
constexpr uint32_t kPadMax = 65535;
constexpr uint64_t kTapsMax = 65536;
constexpr int32_t kExponentMin = -31;
constexpr int32_t kExponentMax = 127;
constexpr uint32_t kLeftShiftMax = 22;
constexpr uint64_t kTableBytes = 256;

uint64_t SaturatingSum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return CheckedAdd(a, b, &sum) ? sum : UINT64_MAX;
}

uint64_t SaturatingProduct(std::initializer_list<uint64_t> factors) {
  uint64_t product = 1;
  for (const uint64_t factor : factors) {
    if (!CheckedMultiply(product, factor, &product)) return UINT64_MAX;
  }
  return product;
}

// Whether the output may be written exactly onto an input of its size.
enum class InPlace { kForbidden, kAllowed };

// Collects the first violation. Operands are named by reference: their position in the struct is
// their position in the encoding.
class Checker {
 public:
  template <typename T>
  Checker(const T& instruction, const Segments& segments, uint64_t memory_bytes)
      : first_operand_(reinterpret_cast<const uint8_t*>(&instruction)),
        segments_(segments),
        memory_bytes_(memory_bytes) {}

  const Fault& fault() const { return fault_; }

  template <typename T>
  void Operand(const T& operand, bool in_range) {
    Report(in_range, FaultCode::kBadOperand, &operand);
  }
  void Sizes(std::initializer_list<const uint32_t*> operands) {
    for (const uint32_t* size : operands) Operand(*size, *size >= 1 && *size <= kSizeMax);
  }
  void Flags(const uint32_t& flags, uint32_t known) { Operand(flags, (flags & ~known) == 0); }
  void ZeroPoint(const int32_t& zero_point, ByteType type) {
    Operand(zero_point, zero_point >= ByteMin(type) && zero_point <= ByteMax(type));
  }
  void ClampRange(const int32_t& min, const int32_t& max, ByteType type) {
    Operand(min, min >= ByteMin(type) && min <= ByteMax(type));
    Operand(max, max >= min && max <= ByteMax(type));
  }
  void Multiplier(const int32_t& value, const int32_t& exponent) {
    Operand(value, value >= 0);
    Operand(exponent, exponent >= kExponentMin && exponent <= kExponentMax);
  }
  // No position of a window may leave 32 bits: (output - 1) * stride + (kernel - 1) * dilation.
  void Window(const uint32_t& output, uint64_t stride, uint64_t kernel, uint64_t dilation) {
    Operand(output,
            SaturatingSum((output - uint64_t{1}) * stride, (kernel - 1) * dilation) <= kSizeMax);
  }

  void Input(const uint32_t& address, uint64_t size_bytes, InPlace in_place = InPlace::kForbidden) {
    inputs_[input_count_++] = {&address, segments_.Resolve(address), size_bytes, in_place};
    Access(inputs_[input_count_ - 1]);
  }
  // After all inputs.
  void Output(const uint32_t& address, uint64_t size_bytes) {
    const Range output{&address, segments_.Resolve(address), size_bytes};
    Access(output);
    for (size_t i = 0; i < input_count_; ++i) {
      const Range& input = inputs_[i];
      const bool apart = output.begin >= SaturatingSum(input.begin, input.size_bytes) ||
                         input.begin >= SaturatingSum(output.begin, output.size_bytes);
      const bool in_place = input.in_place == InPlace::kAllowed && input.begin == output.begin;
      Report(apart || in_place, FaultCode::kOverlap, input.operand);
    }
  }

 private:
  struct Range {
    const uint32_t* operand = nullptr;
    uint64_t begin = 0;
    uint64_t size_bytes = 0;
    InPlace in_place = InPlace::kForbidden;
  };

  void Access(const Range& range) {
    Report(SaturatingSum(range.begin, range.size_bytes) <= memory_bytes_, FaultCode::kBadAddress,
           range.operand);
  }

  void Report(bool ok, FaultCode code, const void* operand) {
    if (ok || fault_.code != FaultCode::kNone) return;
    const auto offset = static_cast<const uint8_t*>(operand) - first_operand_;
    fault_ = {.code = code, .detail = static_cast<uint32_t>(offset / 4 + 1)};
  }

  const uint8_t* first_operand_;
  const Segments& segments_;
  uint64_t memory_bytes_;
  Fault fault_;
  std::array<Range, 3> inputs_{};
  size_t input_count_ = 0;
};

ByteType InputType(uint32_t flags) {
  return (flags & kFlagInputUnsigned) != 0 ? ByteType::kUInt8 : ByteType::kInt8;
}

// What CONV_2D and DEPTHWISE_CONV_2D have in common. `group_channels` is the number of channels
// that one output is summed over, `weight_bytes` the size of the weights.
template <typename T>
void CheckConvolution(const T& i, uint64_t group_channels, uint64_t weight_bytes, Checker& check) {
  const ByteType type = InputType(i.flags);
  check.Operand(i.pad_top, i.pad_top <= kPadMax);
  check.Operand(i.pad_left, i.pad_left <= kPadMax);
  check.Flags(i.flags, kFlagInputUnsigned | kFlagWeightsUnsigned | kFlagDouble);
  check.ZeroPoint(i.input_zero_point, type);
  check.ZeroPoint(i.weight_zero_point,
                  (i.flags & kFlagWeightsUnsigned) != 0 ? ByteType::kUInt8 : ByteType::kInt8);
  check.ZeroPoint(i.output_zero_point, type);
  check.ClampRange(i.clamp_min, i.clamp_max, type);
  check.Operand(i.kernel_h,
                SaturatingProduct({i.kernel_h, i.kernel_w, group_channels}) <= kTapsMax);
  check.Window(i.output_h, i.stride_h, i.kernel_h, i.dilation_h);
  check.Window(i.output_w, i.stride_w, i.kernel_w, i.dilation_w);
  check.Input(i.input_address, SaturatingProduct({i.batch, i.input_h, i.input_w, i.input_c}));
  check.Input(i.weight_address, weight_bytes);
  check.Input(i.channel_address, uint64_t{i.output_c} * kChannelRecordBytes);
  check.Output(i.output_address, SaturatingProduct({i.batch, i.output_h, i.output_w, i.output_c}));
}

// One overload per instruction. Divisions come after the check that their divisor is not 0.
void CheckOperands(const EndInstruction&, Checker&) {}

void CheckOperands(const InputInstruction& i, Checker& check) {
  check.Sizes({&i.bytes});
  check.Output(i.output_address, i.bytes);
}

void CheckOperands(const OutputInstruction& i, Checker& check) {
  check.Sizes({&i.bytes});
  check.Input(i.input_address, i.bytes);
}

void CheckOperands(const ParametersInstruction& i, Checker& check) {
  check.Sizes({&i.bytes});
  check.Output(i.output_address, i.bytes);
}

void CheckOperands(const Conv2DInstruction& i, Checker& check) {
  check.Sizes({&i.batch, &i.input_h, &i.input_w, &i.input_c, &i.output_h, &i.output_w, &i.output_c,
               &i.kernel_h, &i.kernel_w, &i.stride_h, &i.stride_w, &i.dilation_h, &i.dilation_w,
               &i.groups});
  if (check.fault().code != FaultCode::kNone) return;
  check.Operand(i.groups, i.input_c % i.groups == 0 && i.output_c % i.groups == 0);
  const uint64_t group_channels = i.input_c / i.groups;
  CheckConvolution(i, group_channels,
                   SaturatingProduct({i.output_c, i.kernel_h, i.kernel_w, group_channels}), check);
}

void CheckOperands(const DepthwiseConv2DInstruction& i, Checker& check) {
  check.Sizes({&i.batch, &i.input_h, &i.input_w, &i.input_c, &i.output_h, &i.output_w, &i.output_c,
               &i.kernel_h, &i.kernel_w, &i.stride_h, &i.stride_w, &i.dilation_h, &i.dilation_w});
  if (check.fault().code != FaultCode::kNone) return;
  check.Operand(i.input_c, i.output_c % i.input_c == 0);
  CheckConvolution(i, 1, SaturatingProduct({i.kernel_h, i.kernel_w, i.output_c}), check);
}

// What instructions of two tensors have in common; flags and constants come before it.
template <PairInstruction T>
void CheckPair(const T& i, Checker& check) {
  check.Sizes({&i.count0, &i.count1, &i.count2, &i.count3});
  if (check.fault().code != FaultCode::kNone) return;
  check.Operand(i.input1_stride3, i.input1_stride3 <= 1);
  check.Operand(i.input2_stride3, i.input2_stride3 <= 1);
  // Where each input ends, and whether it has the output's layout.
  const std::array<PairLoop, kPairLoops> loops = LoopsOf(i);
  uint64_t count = 1, end1 = 1, end2 = 1;
  bool is_output1 = true, is_output2 = true;
  for (size_t k = loops.size(); k-- > 0;) {
    const uint64_t steps = loops[k].count - uint64_t{1};
    end1 = SaturatingSum(end1, steps * loops[k].input1_stride);
    end2 = SaturatingSum(end2, steps * loops[k].input2_stride);
    is_output1 = is_output1 && (steps == 0 || loops[k].input1_stride == count);
    is_output2 = is_output2 && (steps == 0 || loops[k].input2_stride == count);
    count = SaturatingProduct({count, loops[k].count});
  }
  check.Input(i.input1_address, end1, is_output1 ? InPlace::kAllowed : InPlace::kForbidden);
  check.Input(i.input2_address, end2, is_output2 ? InPlace::kAllowed : InPlace::kForbidden);
  check.Output(i.output_address, count);
}

void CheckOperands(const AddInstruction& i, Checker& check) {
  const ByteType type = InputType(i.flags);
  check.Flags(i.flags, kFlagInputUnsigned | kFlagSubtract | kFlagSquare);
  check.Operand(i.flags, (i.flags & kFlagSquare) == 0 || (i.flags & kFlagSubtract) != 0);
  check.Operand(i.left_shift, i.left_shift <= kLeftShiftMax);
  check.ZeroPoint(i.input1_zero_point, type);
  check.ZeroPoint(i.input2_zero_point, type);
  check.ZeroPoint(i.output_zero_point, type);
  check.Multiplier(i.input1_multiplier, i.input1_exponent);
  check.Multiplier(i.input2_multiplier, i.input2_exponent);
  check.Multiplier(i.output_multiplier, i.output_exponent);
  check.ClampRange(i.clamp_min, i.clamp_max, type);
  CheckPair(i, check);
}

void CheckOperands(const MultiplyInstruction& i, Checker& check) {
  const ByteType type = InputType(i.flags);
  check.Flags(i.flags, kFlagInputUnsigned);
  check.ZeroPoint(i.input1_zero_point, type);
  check.ZeroPoint(i.input2_zero_point, type);
  check.ZeroPoint(i.output_zero_point, type);
  check.Multiplier(i.output_multiplier, i.output_exponent);
  check.ClampRange(i.clamp_min, i.clamp_max, type);
  CheckPair(i, check);
}

void CheckOperands(const MaximumInstruction& i, Checker& check) {
  check.Flags(i.flags, kFlagInputUnsigned);
  CheckPair(i, check);
}

void CheckOperands(const MinimumInstruction& i, Checker& check) {
  check.Flags(i.flags, kFlagInputUnsigned);
  CheckPair(i, check);
}

void CheckOperands(const PreluInstruction& i, Checker& check) {
  const ByteType type = InputType(i.flags);
  check.Flags(i.flags, kFlagInputUnsigned);
  check.ZeroPoint(i.input1_zero_point, type);
  check.ZeroPoint(i.input2_zero_point, type);
  check.ZeroPoint(i.output_zero_point, type);
  check.Multiplier(i.positive_multiplier, i.positive_exponent);
  check.Multiplier(i.negative_multiplier, i.negative_exponent);
  check.ClampRange(i.clamp_min, i.clamp_max, type);
  CheckPair(i, check);
}

// Every window must hold a cell of the image: the first may not end before it, nor the last begin
// behind it.
bool WindowsMeetImage(uint32_t input, uint32_t output, uint32_t kernel, uint32_t stride,
                      uint32_t pad) {
  return kernel > pad && (output - uint64_t{1}) * stride < uint64_t{input} + pad;
}

void CheckOperands(const Pool2DInstruction& i, Checker& check) {
  check.Sizes({&i.batch, &i.input_h, &i.input_w, &i.channels, &i.output_h, &i.output_w, &i.kernel_h,
               &i.kernel_w, &i.stride_h, &i.stride_w});
  if (check.fault().code != FaultCode::kNone) return;
  check.Operand(i.pad_top, i.pad_top <= kPadMax);
  check.Operand(i.pad_left, i.pad_left <= kPadMax);
  check.Flags(i.flags, kFlagInputUnsigned | kFlagAverage);
  check.ClampRange(i.clamp_min, i.clamp_max, InputType(i.flags));
  check.Operand(i.kernel_h, SaturatingProduct({i.kernel_h, i.kernel_w}) <= kTapsMax);
  check.Window(i.output_h, i.stride_h, i.kernel_h, 1);
  check.Window(i.output_w, i.stride_w, i.kernel_w, 1);
  check.Operand(i.kernel_h,
                WindowsMeetImage(i.input_h, i.output_h, i.kernel_h, i.stride_h, i.pad_top));
  check.Operand(i.kernel_w,
                WindowsMeetImage(i.input_w, i.output_w, i.kernel_w, i.stride_w, i.pad_left));
  check.Input(i.input_address, SaturatingProduct({i.batch, i.input_h, i.input_w, i.channels}));
  check.Output(i.output_address, SaturatingProduct({i.batch, i.output_h, i.output_w, i.channels}));
}

void CheckOperands(const MeanInstruction& i, Checker& check) {
  const ByteType type = InputType(i.flags);
  check.Sizes({&i.batch, &i.positions, &i.channels});
  check.Flags(i.flags, kFlagInputUnsigned);
  check.ZeroPoint(i.input_zero_point, type);
  check.Multiplier(i.multiplier, i.exponent);
  check.ZeroPoint(i.output_zero_point, type);
  check.ClampRange(i.clamp_min, i.clamp_max, type);
  check.Input(i.input_address, SaturatingProduct({i.batch, i.positions, i.channels}));
  check.Output(i.output_address, SaturatingProduct({i.batch, i.channels}));
}

void CheckOperands(const TableInstruction& i, Checker& check) {
  check.Sizes({&i.count});
  check.Input(i.table_address, kTableBytes);
  check.Input(i.input_address, i.count, InPlace::kAllowed);
  check.Output(i.output_address, i.count);
}

void CheckOperands(const CopyInstruction& i, Checker& check) {
  check.Sizes({&i.bytes, &i.count0, &i.count1, &i.count2, &i.count3, &i.count4});
  if (check.fault().code != FaultCode::kNone) return;
  uint64_t total = i.bytes, input_end = i.bytes, output_end = i.bytes;
  for (const CopyLoop& loop : LoopsOf(i)) {
    const uint64_t steps = loop.count - uint64_t{1};
    total = SaturatingProduct({total, loop.count});
    input_end = SaturatingSum(input_end, steps * loop.input_stride);
    output_end = SaturatingSum(output_end, steps * loop.output_stride);
  }
  check.Operand(i.bytes, total <= kSizeMax);
  check.Input(i.input_address, input_end);
  check.Output(i.output_address, output_end);
}

void CheckOperands(const FillInstruction& i, Checker& check) {
  check.Sizes({&i.bytes});
  check.Operand(i.value, i.value <= 255);
  check.Output(i.output_address, i.bytes);
}

void CheckOperands(std::monostate, Checker&) { ATOLL_CHECK(false); }

}  // namespace

Fault CheckInstruction(const Instruction& instruction, const Segments& segments,
                       uint64_t memory_bytes) {
  return std::visit(
      [&](const auto& operands) {
        Checker check(operands, segments, memory_bytes);
        CheckOperands(operands, check);
        return check.fault();
      },
      instruction);
}

Fault CheckChannelRecords(std::span<const uint8_t> records, uint32_t flags) {
  for (size_t offset = 0; offset < records.size(); offset += kChannelRecordBytes) {
    const uint8_t* record = &records[offset];
    const int32_t multiplier = LoadLittleEndian<int32_t>(record + 4);
    bool ok;
    if ((flags & kFlagDouble) != 0) {
      ok = multiplier == 0 && std::isfinite(LoadLittleEndian<double>(record + 8));
    } else {
      const int32_t exponent = LoadLittleEndian<int32_t>(record + 8);
      ok = multiplier >= 0 && exponent >= kExponentMin && exponent <= kExponentMax &&
           LoadLittleEndian<uint32_t>(record + 12) == 0;
    }
    if (!ok) {
      return {FaultCode::kBadOperand, static_cast<uint32_t>(offset / kChannelRecordBytes)};
    }
  }
  return {};
}

}  // namespace atollrt
