// SPDX-License-Identifier: Apache-2.0
//
// Limits of operands: operand_limits.inc for the program. Pure functions; they take hostile values.
#pragma once

#include <cstdint>

#include "runtime/base/bytes.h"

namespace atollrt {

enum class OperandLimit : uint8_t {
#define ATOLL_OPERAND_LIMIT(Name, most, meaning, rule) k##Name,
#include "driver/isa/operand_limits.inc"
#undef ATOLL_OPERAND_LIMIT
};

constexpr uint64_t MostOf(OperandLimit limit) {
  constexpr uint64_t kMost[] = {
#define ATOLL_OPERAND_LIMIT(Name, most, meaning, rule) most,
#include "driver/isa/operand_limits.inc"
#undef ATOLL_OPERAND_LIMIT
  };
  return kMost[static_cast<uint8_t>(limit)];
}

constexpr bool IsWithin(OperandLimit limit, uint64_t number) { return number <= MostOf(limit); }

// What kReach is about: the first cell of the last window's last tap, counted from the first cell
// of the first window. `output` and `kernel` are at least 1.
inline uint64_t WindowReach(uint64_t output, uint64_t stride, uint64_t kernel, uint64_t dilation) {
  return SaturatingSum(SaturatingProduct({output - 1, stride}),
                       SaturatingProduct({kernel - 1, dilation}));
}

}  // namespace atollrt
