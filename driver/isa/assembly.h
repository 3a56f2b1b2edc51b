// SPDX-License-Identifier: Apache-2.0
//
// Programs and executables as text that people read and write (docs/assembly.md). What is written
// here reads back equal. Pure functions, thread-safe; the assembler takes hostile text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "driver/isa/executable.h"
#include "driver/isa/instruction.h"

namespace atollrt {

struct DisassemblyOptions {
  // What to call the nodes of Executable::inference_nodes in comments; those beyond get a number.
  std::span<const std::string> node_names = {};
  // Whether parameters are written, 2 characters a byte, or only how many there are. Without them
  // the text assembles only if there are none.
  bool parameters = false;
};

// A valid executable: what the container holds, then each instruction behind a comment with its
// index, unit, cycles (of the array it was compiled for) and node.
std::string DisassembleExecutable(const Executable& executable, const DisassemblyOptions& options);

// Instructions, one a line, as Disassemble writes them; empty lines and comments are skipped.
// kCorruptModel with line, column, what is wrong there and what could be written instead. Operand
// values are not judged (the device does that).
Result<std::vector<Instruction>> AssembleProgram(std::string_view text);

// The executables of a text, at least one, each valid (executable.h). Errors as AssembleProgram, or
// as ValidateExecutable; kUnsupported for another ISA version.
Result<std::vector<Executable>> AssembleExecutables(std::string_view text);

}  // namespace atollrt
