// SPDX-License-Identifier: Apache-2.0
//
// A pair operator (pairs.h) that is one with the kernel of one of its operands: as soon as that
// kernel has made a few bytes, while they are in the level 1 cache, they are combined with those of
// the other operand, a tensor of the same size that is there. The bytes are those of the two
// operators one after the other.
#pragma once

#include <cstdint>

#include "runtime/kernels/pairs/pairs.h"

namespace atollrt {

struct PairTail {
  PairFn combine = nullptr;
  PairParams params;
  bool is_second = false;  // what the kernel makes is x2

  // `x` of the kernel; y may be x or `other`, but not overlap them otherwise.
  void Run(const uint8_t* x, const uint8_t* other, uint8_t* y, int64_t count) const {
    combine(params, is_second ? other : x, is_second ? x : other, y, count);
  }
};

// Where the tail of a whole tensor finds its operand and puts its result: both have the size of
// what the kernel makes. y may be that tensor or `other`.
struct PairTailOperands {
  const PairTail* tail = nullptr;  // nullptr: none
  const uint8_t* other = nullptr;
  uint8_t* y = nullptr;
};

}  // namespace atollrt
