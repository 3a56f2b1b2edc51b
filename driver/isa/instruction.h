// SPDX-License-Identifier: Apache-2.0
//
// Atoll-1 instructions as plain structs, and their 128-byte encoding (docs/isa.md). Everything
// here is made from the list instructions.inc. Pure functions, thread-safe; Decode takes hostile
// bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <variant>

#include "atoll/status.h"
#include "runtime/base/bytes.h"
#include "runtime/base/unit.h"

namespace atollrt {

inline constexpr uint32_t kIsaVersion = 1;
inline constexpr size_t kInstructionBytes = 128;
inline constexpr size_t kInstructionWords = kInstructionBytes / 4;
inline constexpr size_t kChannelRecordBytes = 16;  // docs/isa.md, "Channel records"

// Bit 31 of an on-chip address: set for the parameter segment.
inline constexpr uint32_t kParameterSegment = 0x80000000u;

// Bits of the `flags` operands: kFlagInputUnsigned and so on.
#define ATOLL_FLAG(Name, NAME, bit, meaning) inline constexpr uint32_t kFlag##Name = 1u << (bit);
#include "driver/isa/instructions.inc"

// struct EndInstruction {}; struct Conv2DInstruction { uint32_t input_address; ... }; and so on.
// All members have 32 bits and the order of the encoding, so that a struct is words 1, 2, ... of
// its instruction.
#define ATOLL_INSTRUCTION(Struct, MNEMONIC, opcode, unit, meaning) struct Struct##Instruction {
#define ATOLL_OPERAND(Struct, type, name, meaning) type name = 0;
#define ATOLL_INSTRUCTION_END(Struct)                          \
  bool operator==(const Struct##Instruction&) const = default; \
  }                                                            \
  ;
#include "driver/isa/instructions.inc"

// Any one instruction; the alternatives have the order of the list.
using Instruction = std::variant<
#define ATOLL_INSTRUCTION(Struct, MNEMONIC, opcode, unit, meaning) Struct##Instruction,
#include "driver/isa/instructions.inc"
    std::monostate>;  // closes the list; never encoded

// Kinds of instructions that are alike in their operands. INPUT, OUTPUT and PARAMETERS:
template <typename T>
concept StreamInstruction = std::is_same_v<T, InputInstruction> ||
    std::is_same_v<T, OutputInstruction> || std::is_same_v<T, ParametersInstruction>;
// CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV_2D:
template <typename T>
concept FilterInstruction = requires(const T& i) {
  i.output_c;
};
// Instructions on two tensors, each of which repeats along loops of its choice: ADD, MULTIPLY, ...
template <typename T>
concept PairInstruction = requires(const T& i) {
  i.input2_stride3;
};
// REDUCE_SUM, REDUCE_MAX and REDUCE_MIN:
template <typename T>
concept ReductionInstruction = requires(const T& i) {
  i.reduced2;
};
// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR:
template <typename T>
concept ResizeInstruction = requires(const T& i) {
  i.output_first;
};

// The input channels that a filter sums up for one output channel; 0 if it has 0 groups.
template <FilterInstruction T>
uint32_t SummedChannels(const T& i) {
  if constexpr (requires { i.groups; }) return i.groups == 0 ? 0 : i.input_c / i.groups;
  return std::is_same_v<T, DepthwiseConv2DInstruction> ? 1 : i.input_c;
}
// Bytes of its weights, saturated.
template <FilterInstruction T>
uint64_t WeightBytes(const T& i) {
  return SaturatingProduct({i.output_c, i.kernel_h, i.kernel_w, SummedChannels(i)});
}

// Loops of pairs and of COPY, outermost first, with bytes between the steps of each operand.
inline constexpr size_t kPairLoops = 4;
inline constexpr size_t kCopyLoops = 5;
struct PairLoop {
  uint32_t count = 1, input1_stride = 0, input2_stride = 0;
};
template <PairInstruction T>
std::array<PairLoop, kPairLoops> LoopsOf(const T& i) {
  return {{{i.count0, i.input1_stride0, i.input2_stride0},
           {i.count1, i.input1_stride1, i.input2_stride1},
           {i.count2, i.input1_stride2, i.input2_stride2},
           {i.count3, i.input1_stride3, i.input2_stride3}}};
}
struct CopyLoop {
  uint32_t count = 1, input_stride = 0, output_stride = 0;
};
inline std::array<CopyLoop, kCopyLoops> LoopsOf(const CopyInstruction& i) {
  return {{{i.count0, i.input_stride0, i.output_stride0},
           {i.count1, i.input_stride1, i.output_stride1},
           {i.count2, i.input_stride2, i.output_stride2},
           {i.count3, i.input_stride3, i.output_stride3},
           {i.count4, i.input_stride4, i.output_stride4}}};
}

// An ADD with CHAINED, or nullptr for any other instruction.
inline const AddInstruction* ChainedAdd(const Instruction& instruction) {
  const auto* add = std::get_if<AddInstruction>(&instruction);
  return add != nullptr && (add->flags & kFlagChained) != 0 ? add : nullptr;
}

using EncodedInstruction = std::array<uint8_t, kInstructionBytes>;

// `instruction` must not hold std::monostate.
EncodedInstruction Encode(const Instruction& instruction);

// The first word of `bytes` that no instruction has: 0 for an unknown opcode, the index of an
// unused word that is not zero, or kInstructionWords if `bytes` encode an instruction.
size_t FindMalformedWord(std::span<const uint8_t, kInstructionBytes> bytes);

// The inverse of Encode. kCorruptModel for an unknown opcode or a nonzero unused word, with its
// number; operand values are not judged here (the device does that).
Result<Instruction> Decode(std::span<const uint8_t, kInstructionBytes> bytes);

// One line of assembly (assembly.h): "FILL output_address=par+0x5, bytes=7, value=9". Addresses are
// always there, other operands unless they are zero.
std::string Disassemble(const Instruction& instruction);

const char* Mnemonic(const Instruction& instruction);
Unit UnitOf(const Instruction& instruction);

// Operands of one instruction in order, for generic walks.
struct OperandInfo {
  const char* name() const;
  uint8_t name_index : 7;  // the same of operands of the same name, of which there are few
  bool is_signed : 1;      // the word is in two's complement
};
// An on-chip address: its name ends in "_address".
bool IsAddress(const OperandInfo& operand);

struct InstructionInfo {
  const char* mnemonic;
  uint32_t opcode;
  Unit unit;
  std::span<const OperandInfo> operands;
};
std::span<const InstructionInfo> InstructionTable();  // in the order of the list

struct FlagInfo {
  const char* name;
  uint32_t bit;  // its value, not its number
};
std::span<const FlagInfo> FlagTable();  // ascending

// What the list says of them in words, for documentation. These take entries of InstructionTable,
// their operands, and entries of FlagTable, not copies.
const char* MeaningOf(const InstructionInfo& instruction);
const char* MeaningOf(const OperandInfo& operand);
const char* MeaningOf(const FlagInfo& flag);

// Limits of operands (operand_limits.inc); numbers may be hostile.
enum class OperandLimit : uint8_t {
#define ATOLL_OPERAND_LIMIT(Name, most, meaning, rule) k##Name,
#include "driver/isa/operand_limits.inc"
#undef ATOLL_OPERAND_LIMIT
};
bool IsWithin(OperandLimit limit, uint64_t number);

// What OperandLimit::kReach is about: the first cell of the last window's last tap, counted from
// the first cell of the first window. `output` and `kernel` are at least 1.
inline uint64_t WindowReach(uint64_t output, uint64_t stride, uint64_t kernel, uint64_t dilation) {
  return SaturatingSum(SaturatingProduct({output - 1, stride}),
                       SaturatingProduct({kernel - 1, dilation}));
}

}  // namespace atollrt
