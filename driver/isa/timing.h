// SPDX-License-Identifier: Apache-2.0
//
// The device's time, docs/isa.md §5: cycles as pure functions of an instruction's operands and of
// the array's size. The emulator's direct face counts with them (the stepped one counts them one by
// one), the compiler estimates with them. The time that a host spends on emulation never enters.
// Thread-safe.
#pragma once

#include <cstdint>

#include "driver/isa/instruction.h"

namespace atollrt {

struct ArraySize {
  uint32_t rows = 0;     // R
  uint32_t columns = 0;  // C
};

// Cycles that `instruction` executes. If an operand is outside the ranges of docs/isa.md §4, so
// that the instruction faults, the number means nothing. Both sizes of the array are at least 1.
uint64_t ExecutionCycles(const Instruction& instruction, ArraySize array);

// A matrix product as SCALE-Sim's weight-stationary model counts it (arXiv 1811.02883 and its
// successors): tiles follow each other without double-buffered weights, R cycles to load each, and
// the count begins at 0. `positions`, `products` and `channels` are M, K and N of docs/isa.md §5,
// at least 1. For comparison with that simulator only.
uint64_t ScaleSimCycles(uint64_t positions, uint64_t products, uint64_t channels, ArraySize array);

// Products that filters sum up, those with padding included: of CONV_2D, DEPTHWISE_CONV_2D,
// TRANSPOSE_CONV_2D and LSTM, 0 for all others. The array makes at most R * C in a cycle.
// Operands may have any value; the product wraps around.
uint64_t MultiplyAccumulates(const Instruction& instruction);

// Cycles of the sequencer between two instructions, and how many it keeps in flight at most.
inline constexpr uint64_t kIssueCycles = 64;
inline constexpr size_t kInstructionsInFlight = 16;

}  // namespace atollrt
