// SPDX-License-Identifier: Apache-2.0
//
// Two tensors of different shapes, element by element as NumPy would combine them: dimensions are
// aligned at the right, and those of size 1 repeat. A Broadcast is the loop nest that this takes,
// with neighbouring dimensions joined where both operands allow it, so equal shapes are a single
// run and a constant per channel is one run per position. Running it allocates nothing.
// Pure functions, thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/base/bytes.h"

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

// Calls run(offset1, offset2, offset) for every run of broadcast.inner.count elements: where it
// starts in both operands and in the output, in elements.
template <typename Function>
void ForEachRun(const Broadcast& broadcast, Function run) {
  std::array<int64_t, Broadcast::kMaxLoops> index{};
  int64_t offset1 = 0, offset2 = 0;
  for (int64_t offset = 0; offset < broadcast.count; offset += broadcast.inner.count) {
    run(offset1, offset2, offset);
    for (size_t i = broadcast.outer.size(); i-- > 0;) {
      const BroadcastLoop& loop = broadcast.outer[i];
      offset1 += loop.stride1;
      offset2 += loop.stride2;
      if (++index[i] < loop.count) break;
      index[i] = 0;
      offset1 -= loop.count * loop.stride1;
      offset2 -= loop.count * loop.stride2;
    }
  }
}

// y[i] = function(x1[i1], x2[i2]) for every element of the output, with operands of type In and
// results of type Out, all little-endian and possibly unaligned.
template <typename In, typename Out, typename Function>
void CombineElements(const Broadcast& broadcast, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                     Function function) {
  constexpr int64_t kIn = sizeof(In);
  constexpr int64_t kOut = sizeof(Out);
  const auto combine = [&](auto step1, auto step2) {
    ForEachRun(broadcast, [&](int64_t offset1, int64_t offset2, int64_t offset) {
      const uint8_t* a = x1 + offset1 * kIn;
      const uint8_t* b = x2 + offset2 * kIn;
      uint8_t* c = y + offset * kOut;
      for (int64_t i = 0; i < broadcast.inner.count; ++i) {
        const In value1 = LoadLittleEndian<In>(a + i * step1 * kIn);
        const In value2 = LoadLittleEndian<In>(b + i * step2 * kIn);
        StoreLittleEndian<Out>(c + i * kOut, function(value1, value2));
      }
    });
  };
  using Still = std::integral_constant<int64_t, 0>;
  using Step = std::integral_constant<int64_t, 1>;
  if (broadcast.inner.stride1 == 0) {
    combine(Still(), Step());
  } else if (broadcast.inner.stride2 == 0) {
    combine(Step(), Still());
  } else {
    combine(Step(), Step());
  }
}

}  // namespace atollrt
