// SPDX-License-Identifier: Apache-2.0
//
// ARG_MAX and ARG_MIN: where along one axis the greatest or the least element is. Pure function,
// thread-safe, allocates nothing.
#pragma once

#include <cstdint>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/reduce.h"
#include "runtime/kernels/row_loops/row_loops.h"

namespace atollrt {

struct ArgReduceParams {
  Extreme which = Extreme::kMax;
  Element input = Element::kInt8;    // a number
  Element output = Element::kInt32;  // or kInt64
  // The input as [outer, size, inner], size at least 1; the output is [outer, inner].
  int64_t outer = 1, size = 1, inner = 1;
};

// For every [outer, inner]: the index along the axis of the first element than which none is
// better. `input` may be unaligned; `pool` may be nullptr.
void ArgReduce(const ArgReduceParams& params, const RowLoops& loops, const uint8_t* input,
               uint8_t* output, ThreadPool* pool);

}  // namespace atollrt
