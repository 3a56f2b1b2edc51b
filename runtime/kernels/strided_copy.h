// SPDX-License-Identifier: Apache-2.0
//
// Copies between two tensors whose elements are visited with constant strides. Slices, splits,
// transpositions, repetitions, reversals and blocks are all of this form: nested loops, each of
// which steps through both tensors. A copy is planned once: loops that continue each other are
// merged and contiguous runs found, so that what is left runs at the speed of memory. Pure
// functions, thread-safe; RunStridedCopy allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/thread_pool.h"

namespace atollrt {

struct StridedCopy {
  // `count` steps of so many bytes. Input strides may be 0 (repeat) or negative (reverse), output
  // strides must keep all elements apart.
  struct Loop {
    int64_t count = 1;
    int64_t in_stride = 0, out_stride = 0;
  };
  int64_t in_offset = 0, out_offset = 0;  // bytes, of the first element
  int64_t run_bytes = 0;                  // contiguous in both tensors; 0: nothing to copy
  std::vector<Loop> loops;                // around the runs, outermost first
};

// The same copy in its cheapest form. Everything in `elements` is in units of elements of
// `element_bytes` bytes, with loops in any order; its run_bytes is not read.
StridedCopy MakeStridedCopy(const StridedCopy& elements, size_t element_bytes);

// Appends the parts of a copy in its cheapest form that write bytes [begin, end) of the output: at
// most two per loop and one. Output strides must be positive, and each loop's must step over
// everything that loops of lesser strides write, as in boxes of a row-major tensor.
void ClipStridedCopy(const StridedCopy& copy, int64_t begin, int64_t end,
                     std::vector<StridedCopy>* parts);

// Reads and writes exactly the elements of the plan. The elements read and those written must not
// overlap, but may lie in one tensor; a plan that copies one run onto itself does nothing. Operands
// may be nullptr if there is nothing to copy, and so may `pool`.
void RunStridedCopy(const StridedCopy& copy, const uint8_t* in, uint8_t* out, ThreadPool* pool);

// One loop over runs of `run_bytes` bytes, at least 1.
void CopyRuns(const StridedCopy::Loop& loop, int64_t run_bytes, const uint8_t* in, uint8_t* out);

// Sets `count` elements at `out` to the one at `element`.
void FillElements(const uint8_t* element, size_t element_bytes, int64_t count, uint8_t* out);

}  // namespace atollrt
