// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/instruction.h"

#include <cstring>
#include <string_view>

namespace atollrt {
namespace {

// An empty struct has a size of 1.
template <typename T>
constexpr size_t kOperandBytes = std::is_empty_v<T> ? 0 : sizeof(T);

#define ATOLL_INSTRUCTION(Struct, MNEMONIC, opcode, unit, meaning)             \
  static_assert(std::is_trivially_copyable_v<Struct##Instruction> &&           \
                kOperandBytes<Struct##Instruction> % 4 == 0 &&                 \
                kOperandBytes<Struct##Instruction> <= kInstructionBytes - 4 && \
                (opcode) <= 0xFFFF);
#define ATOLL_OPERAND(Struct, type, name, meaning) \
  static_assert(sizeof(Struct##Instruction::name) == 4);
#include "driver/isa/instructions.inc"

constexpr FlagInfo kFlags[] = {
#define ATOLL_FLAG(Name, NAME, bit, meaning) {#NAME, kFlag##Name},
#include "driver/isa/instructions.inc"
};

// The names of operands, each once: where the list has it first.
struct OperandNames {
  static constexpr std::string_view kListed[] = {
#define ATOLL_OPERAND(Struct, type, name, meaning) #name,
#include "driver/isa/instructions.inc"
  };
  std::array<const char*, std::size(kListed)> names = {};
  std::array<uint8_t, std::size(kListed)> indices = {};  // of all operands in the list
  size_t count = 0;

  constexpr OperandNames() {
    for (size_t i = 0; i < std::size(kListed); ++i) {
      size_t index = 0;
      while (index < count && kListed[i] != names[index]) ++index;
      if (index == count) names[count++] = kListed[i].data();
      indices[i] = static_cast<uint8_t>(index);
    }
  }
};
constexpr OperandNames kNames;
static_assert(kNames.count <= 128);
constexpr auto kOperandNames = [] {
  std::array<const char*, kNames.count> names = {};
  for (size_t i = 0; i < names.size(); ++i) names[i] = kNames.names[i];
  return names;
}();

// Those of all instructions, one after the other.
constexpr auto kOperands = [] {
  std::array<OperandInfo, kNames.indices.size()> operands{{
#define ATOLL_OPERAND(Struct, type, name, meaning) {0, std::is_signed_v<type>},
#include "driver/isa/instructions.inc"
  }};
  for (size_t i = 0; i < operands.size(); ++i) operands[i].name_index = kNames.indices[i] & 0x7F;
  return operands;
}();

constexpr auto kInstructions = [] {
  size_t end = 0;
  const auto operands = [&](size_t count) {
    end += count;
    return std::span(kOperands).subspan(end - count, count);
  };
  return std::array{
#define ATOLL_INSTRUCTION(Struct, MNEMONIC, opcode, unit, meaning) \
  InstructionInfo{#MNEMONIC, opcode, Unit::unit, operands(kOperandBytes<Struct##Instruction> / 4)},
#include "driver/isa/instructions.inc"
  };
}();

const InstructionInfo* FindInstruction(uint32_t opcode) {
  for (const InstructionInfo& info : InstructionTable()) {
    if (info.opcode == opcode) return &info;
  }
  return nullptr;
}

const InstructionInfo& InfoOf(const Instruction& instruction) {
  ATOLL_CHECK(instruction.index() < InstructionTable().size());
  return InstructionTable()[instruction.index()];
}

uint32_t Word(std::span<const uint8_t, kInstructionBytes> bytes, size_t index) {
  return LoadLittleEndian<uint32_t>(&bytes[4 * index]);
}

// "INPUT_UNSIGNED|DOUBLE"; bits without a name as one number.
std::string FlagsText(uint32_t flags) {
  std::string text;
  const auto add = [&](const std::string& flag) { text += (text.empty() ? "" : "|") + flag; };
  for (const FlagInfo& flag : kFlags) {
    if ((flags & flag.bit) != 0) add(flag.name);
    flags &= ~flag.bit;
  }
  if (flags != 0) add(Format("0x%X", flags));
  return text;
}

std::string OperandText(const OperandInfo& operand, uint32_t word) {
  if (IsAddress(operand)) {
    return Format("%s+0x%X", (word & kParameterSegment) != 0 ? "par" : "act",
                  word & ~kParameterSegment);
  }
  if (std::string_view(operand.name()) == "flags") return FlagsText(word);
  return operand.is_signed ? Format("%d", static_cast<int32_t>(word)) : Format("%u", word);
}

}  // namespace

const char* OperandInfo::name() const { return kOperandNames[name_index]; }

bool IsAddress(const OperandInfo& operand) {
  return std::string_view(operand.name()).ends_with("_address");
}

std::span<const FlagInfo> FlagTable() { return kFlags; }

std::span<const InstructionInfo> InstructionTable() { return kInstructions; }

EncodedInstruction Encode(const Instruction& instruction) {
  EncodedInstruction bytes{};
  StoreLittleEndian<uint32_t>(bytes.data(), InfoOf(instruction).opcode);
  std::visit(
      [&](const auto& operands) {
        using T = std::decay_t<decltype(operands)>;
        std::memcpy(bytes.data() + 4, &operands, kOperandBytes<T>);
      },
      instruction);
  return bytes;
}

size_t FindMalformedWord(std::span<const uint8_t, kInstructionBytes> bytes) {
  const InstructionInfo* info = FindInstruction(Word(bytes, 0));
  if (info == nullptr) return 0;
  for (size_t i = 1 + info->operands.size(); i < kInstructionWords; ++i) {
    if (Word(bytes, i) != 0) return i;
  }
  return kInstructionWords;
}

Result<Instruction> Decode(std::span<const uint8_t, kInstructionBytes> bytes) {
  const size_t malformed = FindMalformedWord(bytes);
  if (malformed == 0) return CorruptModel("unknown opcode 0x%08X", Word(bytes, 0));
  if (malformed < kInstructionWords) {
    return CorruptModel("%s: unused word %zu is 0x%08X, must be 0",
                        FindInstruction(Word(bytes, 0))->mnemonic, malformed,
                        Word(bytes, malformed));
  }
  Instruction instruction;
  switch (Word(bytes, 0)) {
#define ATOLL_INSTRUCTION(Struct, MNEMONIC, opcode, unit, meaning)         \
  case opcode: {                                                           \
    auto& operands = instruction.emplace<Struct##Instruction>();           \
    std::memcpy(&operands, &bytes[4], kOperandBytes<Struct##Instruction>); \
    break;                                                                 \
  }
#include "driver/isa/instructions.inc"
  }
  return instruction;
}

std::string Disassemble(const Instruction& instruction) {
  const InstructionInfo& info = InfoOf(instruction);
  const EncodedInstruction bytes = Encode(instruction);
  std::string line = info.mnemonic;
  const char* separator = " ";
  for (size_t i = 0; i < info.operands.size(); ++i) {
    const OperandInfo& operand = info.operands[i];
    const uint32_t word = Word(bytes, i + 1);
    if (word == 0 && !IsAddress(operand)) continue;
    line += Format("%s%s=%s", separator, operand.name(), OperandText(operand, word).c_str());
    separator = ", ";
  }
  return line;
}

const char* Mnemonic(const Instruction& instruction) { return InfoOf(instruction).mnemonic; }

Unit UnitOf(const Instruction& instruction) { return InfoOf(instruction).unit; }

const char* MeaningOf(const InstructionInfo& instruction) {
  constexpr const char* kMeanings[] = {
#define ATOLL_INSTRUCTION(Struct, MNEMONIC, opcode, unit, meaning) meaning,
#include "driver/isa/instructions.inc"
  };
  return kMeanings[&instruction - kInstructions.data()];
}

const char* MeaningOf(const OperandInfo& operand) {
  constexpr const char* kMeanings[] = {
#define ATOLL_OPERAND(Struct, type, name, meaning) meaning,
#include "driver/isa/instructions.inc"
  };
  return kMeanings[&operand - kOperands.data()];
}

const char* MeaningOf(const FlagInfo& flag) {
  constexpr const char* kMeanings[] = {
#define ATOLL_FLAG(Name, NAME, bit, meaning) meaning,
#include "driver/isa/instructions.inc"
  };
  return kMeanings[&flag - kFlags];
}

bool IsWithin(OperandLimit limit, uint64_t number) {
  constexpr uint64_t kMost[] = {
#define ATOLL_OPERAND_LIMIT(Name, most, meaning, rule) most,
#include "driver/isa/operand_limits.inc"
#undef ATOLL_OPERAND_LIMIT
  };
  return number <= kMost[static_cast<size_t>(limit)];
}

}  // namespace atollrt
