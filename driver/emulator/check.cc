// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/check.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "driver/isa/instruction.h"
#include "runtime/base/bytes.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/kernels/resize.h"

namespace atollrt {
namespace {

constexpr uint32_t kSizeMax = 0x7FFFFFFF;
constexpr int32_t kExponentMin = -31;
constexpr int32_t kExponentMax = 127;
constexpr uint32_t kLeftShiftMax = 22;
constexpr int64_t kByteDifferenceMax = 255;
constexpr uint32_t kCellIntegerBitsMax = 6;

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
  void Limit(const uint32_t& operand, OperandLimit limit, uint64_t number) {
    Operand(operand, IsWithin(limit, number));
  }
  void Limit(const uint32_t& operand, OperandLimit limit) { Limit(operand, limit, operand); }
  // No position of a window may leave 32 bits.
  void Window(const uint32_t& output, uint64_t stride, uint64_t kernel, uint64_t dilation) {
    Limit(output, OperandLimit::kReach, WindowReach(output, stride, kernel, dilation));
  }

  // That everything lies in memory and that nothing is written onto something else.
  void Accesses(const MemoryAccesses& accesses) {
    for (const MemoryAccess& access : accesses) {
      Report(End(access) <= memory_bytes_, FaultCode::kBadAddress, access.word);
    }
    using Kind = MemoryAccess::Kind;
    for (const Kind kind : {Kind::kWrite, Kind::kReadWrite}) {
      for (const MemoryAccess& written : accesses) {
        if (written.kind != kind) continue;
        for (const MemoryAccess* other = accesses.begin(); other != &written; ++other) {
          const bool in_place =
              other->kind == Kind::kReadInPlace && Begin(*other) == Begin(written);
          const bool apart = AreApart(*other, written, segments_);
          Report(apart || in_place, FaultCode::kOverlap, other->word);
        }
      }
    }
  }

 private:
  uint64_t Begin(const MemoryAccess& access) const { return segments_.Resolve(access.address); }
  uint64_t End(const MemoryAccess& access) const {
    return SaturatingSum(Begin(access), access.bytes);
  }

  void Report(bool ok, FaultCode code, const void* operand) {
    const auto offset = static_cast<const uint8_t*>(operand) - first_operand_;
    Report(ok, code, static_cast<uint8_t>(offset / 4 + 1));
  }
  void Report(bool ok, FaultCode code, uint8_t word) {
    if (!ok && fault_.code == FaultCode::kNone) fault_ = {.code = code, .detail = word};
  }

  const uint8_t* first_operand_;
  const Segments& segments_;
  uint64_t memory_bytes_;
  Fault fault_;
};

ByteType InputType(uint32_t flags) {
  return (flags & kFlagInputUnsigned) != 0 ? ByteType::kUInt8 : ByteType::kInt8;
}

// One for each kind of instruction. Divisions come after the check that their divisor is not 0.
void CheckOperands(const EndInstruction&, Checker&) {}

template <StreamInstruction T>
void CheckOperands(const T& i, Checker& check) {
  check.Sizes({&i.bytes});
}

template <FilterInstruction T>
void CheckOperands(const T& i, Checker& check) {
  check.Sizes({&i.batch, &i.input_h, &i.input_w, &i.input_c, &i.output_h, &i.output_w, &i.output_c,
               &i.kernel_h, &i.kernel_w, &i.stride_h, &i.stride_w});
  if constexpr (requires { i.dilation_h; }) check.Sizes({&i.dilation_h, &i.dilation_w});
  if constexpr (requires { i.groups; }) check.Sizes({&i.groups});
  if (check.fault().code != FaultCode::kNone) return;
  if constexpr (requires { i.groups; }) {
    check.Operand(i.groups, i.input_c % i.groups == 0 && i.output_c % i.groups == 0);
  } else if constexpr (std::is_same_v<T, DepthwiseConv2DInstruction>) {
    check.Operand(i.input_c, i.output_c % i.input_c == 0);
  }
  check.Limit(i.pad_top, OperandLimit::kPad);
  check.Limit(i.pad_left, OperandLimit::kPad);
  check.Limit(i.kernel_h, OperandLimit::kTaps,
              SaturatingProduct({i.kernel_h, i.kernel_w, SummedChannels(i)}));
  if constexpr (requires { i.dilation_h; }) {
    check.Window(i.output_h, i.stride_h, i.kernel_h, i.dilation_h);
    check.Window(i.output_w, i.stride_w, i.kernel_w, i.dilation_w);
  }
  const ByteType type = InputType(i.flags);
  check.Flags(i.flags, kFlagInputUnsigned | kFlagWeightsUnsigned | kFlagDouble);
  check.ZeroPoint(i.input_zero_point, type);
  check.ZeroPoint(i.weight_zero_point,
                  (i.flags & kFlagWeightsUnsigned) != 0 ? ByteType::kUInt8 : ByteType::kInt8);
  check.ZeroPoint(i.output_zero_point, type);
  check.ClampRange(i.clamp_min, i.clamp_max, type);
}

void CheckOperands(const LstmInstruction& i, Checker& check) {
  check.Sizes({&i.batch, &i.steps, &i.inputs, &i.units});
  check.Limit(i.inputs, OperandLimit::kTaps);
  check.Limit(i.units, OperandLimit::kTaps);
  check.Operand(i.time_major, i.time_major <= 1);
  check.Operand(i.cell_integer_bits, i.cell_integer_bits <= kCellIntegerBitsMax);
  check.Operand(i.cell_clip, i.cell_clip <= INT16_MAX);
  check.Multiplier(i.hidden_multiplier, i.hidden_exponent);
  check.ZeroPoint(i.hidden_zero_point, ByteType::kInt8);
}

template <PairInstruction T>
void CheckOperands(const T& i, Checker& check) {
  const ByteType type = InputType(i.flags);
  constexpr bool kIsAdd = std::is_same_v<T, AddInstruction>;
  check.Flags(i.flags,
              kFlagInputUnsigned | (kIsAdd ? kFlagSubtract | kFlagSquare | kFlagChained : 0));
  if constexpr (kIsAdd) {
    check.Operand(i.flags, (i.flags & kFlagSquare) == 0 || (i.flags & kFlagSubtract) != 0);
    check.Operand(i.left_shift, i.left_shift <= kLeftShiftMax);
  }
  if constexpr (requires { i.clamp_min; }) {
    check.ZeroPoint(i.input1_zero_point, type);
    check.ZeroPoint(i.input2_zero_point, type);
    check.ZeroPoint(i.output_zero_point, type);
    if constexpr (kIsAdd) {
      check.Multiplier(i.input1_multiplier, i.input1_exponent);
      check.Multiplier(i.input2_multiplier, i.input2_exponent);
    }
    if constexpr (requires { i.output_multiplier; }) {
      check.Multiplier(i.output_multiplier, i.output_exponent);
    } else {
      check.Multiplier(i.positive_multiplier, i.positive_exponent);
      check.Multiplier(i.negative_multiplier, i.negative_exponent);
    }
    check.ClampRange(i.clamp_min, i.clamp_max, type);
  }
  check.Sizes({&i.count0, &i.count1, &i.count2, &i.count3});
  check.Operand(i.input1_stride3, i.input1_stride3 <= 1);
  check.Operand(i.input2_stride3, i.input2_stride3 <= 1);
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
  check.Limit(i.pad_top, OperandLimit::kPad);
  check.Limit(i.pad_left, OperandLimit::kPad);
  check.Flags(i.flags, kFlagInputUnsigned | kFlagAverage);
  check.ClampRange(i.clamp_min, i.clamp_max, InputType(i.flags));
  check.Limit(i.kernel_h, OperandLimit::kTaps, SaturatingProduct({i.kernel_h, i.kernel_w}));
  check.Window(i.output_h, i.stride_h, i.kernel_h, 1);
  check.Window(i.output_w, i.stride_w, i.kernel_w, 1);
  check.Operand(i.kernel_h,
                WindowsMeetImage(i.input_h, i.output_h, i.kernel_h, i.stride_h, i.pad_top));
  check.Operand(i.kernel_w,
                WindowsMeetImage(i.input_w, i.output_w, i.kernel_w, i.stride_w, i.pad_left));
}

template <ReductionInstruction T>
void CheckOperands(const T& i, Checker& check) {
  if constexpr (requires { i.multiplier; }) {
    const ByteType type = InputType(i.flags);
    check.ZeroPoint(i.input_zero_point, type);
    check.Multiplier(i.multiplier, i.exponent);
    check.ZeroPoint(i.output_zero_point, type);
    check.ClampRange(i.clamp_min, i.clamp_max, type);
  }
  check.Sizes({&i.kept0, &i.reduced0, &i.kept1, &i.reduced1, &i.kept2, &i.reduced2});
  check.Flags(i.flags, kFlagInputUnsigned);
}

void CheckOperands(const TableInstruction& i, Checker& check) { check.Sizes({&i.count}); }

void CheckOperands(const CopyInstruction& i, Checker& check) {
  check.Sizes({&i.bytes, &i.count0, &i.count1, &i.count2, &i.count3, &i.count4});
  if (check.fault().code != FaultCode::kNone) return;
  uint64_t total = i.bytes;
  for (const CopyLoop& loop : LoopsOf(i)) total = SaturatingProduct({total, loop.count});
  check.Operand(i.bytes, total <= kSizeMax);
}

void CheckOperands(const FillInstruction& i, Checker& check) {
  check.Sizes({&i.bytes});
  check.Operand(i.value, i.value <= 255);
}

void CheckOperands(const SoftmaxInstruction& i, Checker& check) {
  check.Sizes({&i.rows, &i.depth});
  check.Flags(i.flags, kFlagInputUnsigned);
  check.Multiplier(i.multiplier, i.exponent);
  check.Operand(i.min_difference, i.min_difference <= 0);
  if (check.fault().code != FaultCode::kNone) return;
  // No difference that counts may leave 32 bits when it is shifted.
  const int64_t greatest = -std::max<int64_t>(i.min_difference, -kByteDifferenceMax);
  const int32_t shift = std::max(i.exponent, 0);
  check.Operand(i.min_difference,
                greatest == 0 || (shift <= 31 && greatest << shift <= int64_t{1} << 31));
}

void CheckOperands(const L2NormalizationInstruction& i, Checker& check) {
  check.Sizes({&i.rows, &i.depth});
  check.Flags(i.flags, kFlagInputUnsigned);
  check.ZeroPoint(i.input_zero_point, InputType(i.flags));
}

template <ResizeInstruction T>
void CheckOperands(const T& i, Checker& check) {
  if constexpr (requires { i.flags; }) check.Flags(i.flags, kFlagInputUnsigned);
  check.Sizes({&i.batch, &i.input_h, &i.input_w, &i.channels, &i.output_h, &i.output_w,
               &i.input_rows, &i.output_rows});
  check.Operand(i.mode, i.mode <= static_cast<uint32_t>(ResizeMode::kHalfPixelCenters));
  check.Operand(i.input_first, uint64_t{i.input_first} + i.input_rows <= i.input_h);
  check.Operand(i.output_first, uint64_t{i.output_first} + i.output_rows <= i.output_h);
  if (check.fault().code != FaultCode::kNone) return;
  const ResizeParams params{.input_h = static_cast<int32_t>(i.input_h),
                            .output_h = static_cast<int32_t>(i.output_h),
                            .mode = static_cast<ResizeMode>(i.mode)};
  const ResizeRows made{static_cast<int32_t>(i.output_first), static_cast<int32_t>(i.output_rows)};
  ResizeRows needed;
  if constexpr (requires { i.flags; }) {
    const bool is_unsigned = InputType(i.flags) == ByteType::kUInt8;
    needed = BilinearInputRows(params, is_unsigned ? ResizeType::kUInt8 : ResizeType::kInt8, made);
  } else {
    needed = NearestInputRows(params, made);
  }
  const uint32_t first = static_cast<uint32_t>(needed.first);
  const uint32_t end = first + static_cast<uint32_t>(needed.count);
  check.Operand(i.input_first, first >= i.input_first);
  check.Operand(i.input_rows, end <= i.input_first + i.input_rows);
}

void CheckOperands(std::monostate, Checker&) { ATOLL_CHECK(false); }

}  // namespace

Fault CheckInstruction(const Instruction& instruction, const Segments& segments,
                       uint64_t memory_bytes) {
  return std::visit(
      [&](const auto& operands) {
        Checker check(operands, segments, memory_bytes);
        CheckOperands(operands, check);
        check.Accesses(AccessesOf(instruction));
        return check.fault();
      },
      instruction);
}

Fault CheckChain(const Instruction* before, const Instruction& instruction,
                 const Segments& segments) {
  const AddInstruction* add = ChainedAdd(instruction);
  if (add == nullptr) return {};
  Checker check(*add, segments, UINT64_MAX);
  check.Operand(add->flags, before != nullptr && MayChain(*before, *add, segments));
  return check.fault();
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
