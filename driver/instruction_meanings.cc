// SPDX-License-Identifier: Apache-2.0
#include "driver/instruction_meanings.h"

namespace atollrt {
namespace {

// In the order of the tables of instruction.cc.
constexpr const char* kInstructions[] = {
#define ATOLL_INSTRUCTION(Struct, MNEMONIC, opcode, unit, meaning) meaning,
#include "driver/instructions.inc"
};
constexpr const char* kOperands[] = {
#define ATOLL_OPERAND(Struct, type, name, meaning) meaning,
#include "driver/instructions.inc"
};
constexpr const char* kFlags[] = {
#define ATOLL_FLAG(Name, NAME, bit, meaning) meaning,
#include "driver/instructions.inc"
};

}  // namespace

const char* MeaningOf(const InstructionInfo& instruction) {
  return kInstructions[&instruction - InstructionTable().data()];
}

// Operands of all instructions follow each other.
const char* MeaningOf(const OperandInfo& operand) {
  return kOperands[&operand - InstructionTable().front().operands.data()];
}

const char* MeaningOf(const FlagInfo& flag) { return kFlags[&flag - FlagTable().data()]; }

}  // namespace atollrt
