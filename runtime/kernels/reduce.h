// SPDX-License-Identifier: Apache-2.0
//
// Reductions of any axes: every element of the input is folded into one element of the output, in
// the order in which it is stored (which decides the rounding of float sums). A reduction is
// planned once: neighbouring axes that are treated alike become one loop, so that the innermost
// loop either folds a row into one element or adds a row to a row. Pure functions, thread-safe;
// nothing but MakeReducePlan allocates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/kernels/row_loops/row_loops.h"

namespace atollrt {

// `count` steps of so many elements. The input of a nest of loops is dense: a step of one of them
// is all steps of the next.
struct ReduceLoop {
  int64_t count = 1;
  int64_t in_stride = 1;
  int64_t out_stride = 0;  // 0: the axis is reduced
};

struct ReducePlan {
  std::vector<ReduceLoop> loops;  // over the input, outermost first
  int64_t outputs = 1;            // elements
  int64_t reduced = 1;            // input elements per output element
};

// Axis i of an input of `sizes` (all at least 1) is reduced if reduce[i].
ReducePlan MakeReducePlan(const std::vector<int32_t>& sizes, const std::vector<bool>& reduce);

// accumulators[o] = fold(accumulators[o], x) for all elements x of `loops`; returns the end of the
// input. `input` may be unaligned.
template <typename In, typename Accumulator, typename Fold>
const uint8_t* ReduceLoops(std::span<const ReduceLoop> loops, const uint8_t* input,
                           Accumulator* accumulators, Fold fold) {
  if (loops.empty()) {
    *accumulators = fold(*accumulators, LoadLittleEndian<In>(input));
    return input + sizeof(In);
  }
  const ReduceLoop loop = loops[0];
  if (loops.size() > 1) {
    for (int64_t i = 0; i < loop.count; ++i) {
      input = ReduceLoops<In>(loops.subspan(1), input, accumulators + i * loop.out_stride, fold);
    }
    return input;
  }
  constexpr int64_t kSize = sizeof(In);
  if (loop.out_stride == 0) {
    Accumulator sum = *accumulators;
    for (int64_t i = 0; i < loop.count; ++i) {
      sum = fold(sum, LoadLittleEndian<In>(input + i * kSize));
    }
    *accumulators = sum;
  } else {
    for (int64_t i = 0; i < loop.count; ++i) {
      accumulators[i] = fold(accumulators[i], LoadLittleEndian<In>(input + i * kSize));
    }
  }
  return input + loop.count * kSize;
}

// Sets all accumulators to `initial` and folds the whole input into them.
template <typename In, typename Accumulator, typename Fold>
void Reduce(const ReducePlan& plan, const uint8_t* input, Accumulator initial,
            Accumulator* accumulators, Fold fold) {
  for (int64_t i = 0; i < plan.outputs; ++i) accumulators[i] = initial;
  ReduceLoops<In>(std::span<const ReduceLoop>(plan.loops), input, accumulators, fold);
}

enum class Extreme { kMax, kMin };

// The greatest or the least element instead of a sum; `loops` and `outputs` are those of a plan.
template <typename T>
void ReduceExtreme(Extreme which, std::span<const ReduceLoop> loops, int64_t outputs,
                   const uint8_t* input, T* output) {
  using Limits = std::numeric_limits<T>;
  std::fill_n(output, outputs, which == Extreme::kMax ? Limits::lowest() : Limits::max());
  if (which == Extreme::kMax) {
    ReduceLoops<T>(loops, input, output, [](T a, T x) { return a < x ? x : a; });
  } else {
    ReduceLoops<T>(loops, input, output, [](T a, T x) { return x < a ? x : a; });
  }
}

// ---- Sums of bytes ------------------------------------------------------------------------------
//
// MEAN and SUM of bytes; the caller folds the division into the multiplier:
//
//   y = clamp(MultiplyByQuantizedMultiplier(S - input_zero_point * n, multiplier)
//             + output_zero_point)
//
// S sums n raw values. Sums wrap modulo 2^32.

struct ByteSumParams {
  ByteType type = ByteType::kInt8;
  int32_t input_zero_point = 0;
  Multiplier multiplier;
  int32_t output_zero_point = 0;
  ClampRange clamp{-128, 127};  // within the type's range
};

// `nest` is that of a ReducePlan for the input; any number of loops, and their counts may be 1.
// Input and output must not overlap.
void ByteSum(const ByteSumParams& params, std::span<const ReduceLoop> nest, const RowLoops& loops,
             const uint8_t* input, uint8_t* output);

}  // namespace atollrt
