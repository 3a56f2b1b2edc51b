// SPDX-License-Identifier: Apache-2.0
//
// The device's time, docs/isa.md §5: cycles as pure functions of an instruction's operands and of
// the profile. The time that a host spends on emulation never enters. Thread-safe.
#pragma once

#include <cstdint>

#include "driver/device_profile.h"
#include "driver/instruction.h"

namespace atollrt {

// Cycles that `instruction`, whose operands must be within the ranges of docs/isa.md §4, executes.
uint64_t ExecutionCycles(const Instruction& instruction, const DeviceProfile& profile);

// Cycles of the sequencer for any instruction, beside its execution.
uint64_t IssueCycles(const DeviceProfile& profile);

}  // namespace atollrt
