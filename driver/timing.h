// SPDX-License-Identifier: Apache-2.0
//
// The device's time, docs/isa.md §5: cycles as pure functions of an instruction's operands and of
// the array's size. The emulator counts with them, the compiler estimates with them. The time that
// a host spends on emulation never enters. Thread-safe.
#pragma once

#include <cstdint>

#include "driver/instruction.h"

namespace atollrt {

struct ArraySize {
  uint32_t rows = 0;     // R
  uint32_t columns = 0;  // C
};

// Cycles that `instruction`, whose operands must be within the ranges of docs/isa.md §4, executes.
uint64_t ExecutionCycles(const Instruction& instruction, ArraySize array);

// A matrix product as SCALE-Sim's weight-stationary model counts it (arXiv 1811.02883 and its
// successors): tiles follow each other without double-buffered weights, R cycles to load each, and
// the count begins at 0. `positions`, `products` and `channels` are M, K and N of docs/isa.md §5,
// at least 1. For comparison with that simulator only.
uint64_t ScaleSimCycles(uint64_t positions, uint64_t products, uint64_t channels, ArraySize array);

// Cycles of the sequencer between two instructions, and how many it keeps in flight at most.
inline constexpr uint64_t kIssueCycles = 64;
inline constexpr size_t kInstructionsInFlight = 16;

}  // namespace atollrt
