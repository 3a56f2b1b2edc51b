// SPDX-License-Identifier: Apache-2.0
//
// Two tensors of different shapes, element by element as NumPy would combine them: dimensions are
// aligned at the right, and those of size 1 repeat. A Broadcast is the loop nest that this takes,
// with neighbouring dimensions joined where both operands allow it, so equal shapes are a single
// run and a constant per channel is one run per position. Running it allocates nothing.
// Pure functions, thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"

namespace atollrt {

// One loop: how far each operand moves per step, in elements; 0 repeats it.
struct BroadcastLoop {
  int64_t count = 1;
  int64_t stride1 = 0, stride2 = 0;
  bool operator==(const BroadcastLoop&) const = default;
};

struct Broadcast {
  // Every loop runs at least twice and all of them together at most 2^31 times.
  static constexpr size_t kMaxLoops = 32;

  int64_t count = 0;                 // elements of the output
  std::vector<BroadcastLoop> outer;  // from the outermost inwards
  BroadcastLoop inner;               // a run; its strides are 0 or 1, and one of them is 1

  // Both operands are the output's size: one run without repetition.
  bool is_elementwise() const { return outer.empty() && inner.stride1 == 1 && inner.stride2 == 1; }
};

// The shapes must broadcast to one of at most 2^31 elements (InferBroadcast sees to that).
Broadcast MakeBroadcast(std::span<const int32_t> shape1, std::span<const int32_t> shape2);

// Operands of `count` outputs from `offset` on, side by side.
using BlockFunction = void (*)(const void* context, const uint8_t* x1, const uint8_t* x2,
                               int64_t offset, int64_t count);

// Calls function for blocks that make up outputs [begin, end), in order. Operands that lie in the
// order of the outputs are used in place, others are repeated or gathered into blocks of a few KiB.
// `element_bytes` is 1, 2, 4 or 8. Unless there are no outer loops, both ends are multiples of
// broadcast.inner.count. Strides of the inner loop may also both be 0.
void RunBlocks(const Broadcast& broadcast, size_t element_bytes, const uint8_t* x1,
               const uint8_t* x2, int64_t begin, int64_t end, BlockFunction function,
               const void* context);

// function(x1, x2, offset, count) for blocks that make up the whole output, on `pool` (may be
// nullptr) if there are at least two times `grain` elements.
template <typename Function>
void ForEachBlock(const Broadcast& broadcast, size_t element_bytes, const uint8_t* x1,
                  const uint8_t* x2, ThreadPool* pool, int64_t grain, const Function& function) {
  const int64_t unit = broadcast.outer.empty() ? 1 : broadcast.inner.count;
  const auto run = [](const void* context, const uint8_t* block1, const uint8_t* block2,
                      int64_t offset, int64_t count) {
    (*static_cast<const Function*>(context))(block1, block2, offset, count);
  };
  if (broadcast.count == 0) return;
  ParallelRanges(pool, broadcast.count / unit, std::max<int64_t>(grain / unit, 1),
                 [&](int64_t begin, int64_t end) {
                   RunBlocks(broadcast, element_bytes, x1, x2, begin * unit, end * unit, run,
                             &function);
                 });
}

// y[i] = function(x1[i1], x2[i2]) for every element of the output, with operands of type In and
// results of type Out, all little-endian and possibly unaligned.
template <typename In, typename Out, typename Function>
void CombineElements(const Broadcast& broadcast, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                     ThreadPool* pool, const Function& function) {
  constexpr int64_t kGrain = 1 << 13;  // a few nanoseconds each
  ForEachBlock(broadcast, sizeof(In), x1, x2, pool, kGrain,
               [&](const uint8_t* a, const uint8_t* b, int64_t offset, int64_t count) {
                 uint8_t* out = y + offset * static_cast<int64_t>(sizeof(Out));
                 for (int64_t i = 0; i < count; ++i) {
                   const In value1 = LoadLittleEndian<In>(a + i * static_cast<int64_t>(sizeof(In)));
                   const In value2 = LoadLittleEndian<In>(b + i * static_cast<int64_t>(sizeof(In)));
                   StoreLittleEndian<Out>(out + i * static_cast<int64_t>(sizeof(Out)),
                                          function(value1, value2));
                 }
               });
}

}  // namespace atollrt
