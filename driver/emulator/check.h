// SPDX-License-Identifier: Apache-2.0
//
// The rules of docs/isa.md §4: what makes an instruction fault. Checked before it writes anything,
// so that everything behind the checks may trust operands and addresses. Pure functions,
// thread-safe; they take hostile values.
#pragma once

#include <cstdint>
#include <span>

#include "driver/atoll1/protocol.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"

namespace atollrt {

struct Fault {
  FaultCode code = FaultCode::kNone;
  uint32_t detail = 0;
  bool operator==(const Fault&) const = default;
};

// BAD_OPERAND, BAD_ADDRESS, OVERLAP, or kNone if `instruction` may run on a memory of
// `memory_bytes`.
Fault CheckInstruction(const Instruction& instruction, const Segments& segments,
                       uint64_t memory_bytes);

// BAD_OPERAND if `instruction` has CHAINED but may not run together with `before`, the one before
// it in the program, or nullptr; else kNone.
Fault CheckChain(const Instruction* before, const Instruction& instruction,
                 const Segments& segments);

// BAD_OPERAND with the number of the first channel record that is out of range, or kNone.
// `records` are whole channel records, read as `flags` say.
Fault CheckChannelRecords(std::span<const uint8_t> records, uint32_t flags);

}  // namespace atollrt
