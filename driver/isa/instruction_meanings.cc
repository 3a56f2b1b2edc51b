// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/instruction_meanings.h"

namespace atollrt {
namespace {

// In the order of the tables of instruction.cc.
constexpr const char* kInstructionMeanings[] = {
#define ATOLL_INSTRUCTION(Struct, MNEMONIC, opcode, unit, meaning) meaning,
#include "driver/isa/instructions.inc"
};
constexpr const char* kOperandMeanings[] = {
#define ATOLL_OPERAND(Struct, type, name, meaning) meaning,
#include "driver/isa/instructions.inc"
};
constexpr const char* kFlagMeanings[] = {
#define ATOLL_FLAG(Name, NAME, bit, meaning) meaning,
#include "driver/isa/instructions.inc"
};

}  // namespace

const char* MeaningOf(const InstructionInfo& instruction) {
  return kInstructionMeanings[&instruction - InstructionTable().data()];
}

// Operands of all instructions follow each other.
const char* MeaningOf(const OperandInfo& operand) {
  return kOperandMeanings[&operand - InstructionTable().front().operands.data()];
}

const char* MeaningOf(const FlagInfo& flag) { return kFlagMeanings[&flag - FlagTable().data()]; }

}  // namespace atollrt
