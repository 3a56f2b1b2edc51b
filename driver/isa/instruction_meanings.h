// SPDX-License-Identifier: Apache-2.0
//
// What instructions.inc says in words, for documentation; programs that only run models do without
// it. Pure functions, thread-safe.
#pragma once

#include "driver/isa/instruction.h"

namespace atollrt {

// These take entries of InstructionTable, their operands, and entries of FlagTable, not copies.
const char* MeaningOf(const InstructionInfo& instruction);
const char* MeaningOf(const OperandInfo& operand);
const char* MeaningOf(const FlagInfo& flag);

}  // namespace atollrt
