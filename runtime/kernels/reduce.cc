// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/reduce.h"

#include <algorithm>

namespace atollrt {

ReducePlan MakeReducePlan(const std::vector<int32_t>& sizes, const std::vector<bool>& reduce) {
  ReducePlan plan;
  // From the innermost axis outwards, merging into the loop found last.
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    const int64_t out_stride = reduce[i] ? 0 : plan.outputs;
    const bool continues = !plan.loops.empty() && (plan.loops.back().out_stride == 0) == reduce[i];
    if (continues) {
      plan.loops.back().count *= sizes[i];
    } else {
      plan.loops.push_back({sizes[i], plan.outputs * plan.reduced, out_stride});
    }
    (reduce[i] ? plan.reduced : plan.outputs) *= sizes[i];
  }
  std::reverse(plan.loops.begin(), plan.loops.end());
  return plan;
}

namespace {

using Nest = std::span<const ReduceLoop>;

// Outputs that lie next to each other are summed in blocks whose sums stay in the first-level
// cache.
constexpr int64_t kBlock = 256;

enum class Axes { kKept, kReduced };

// `nest` from the first loop on that is of these axes and takes more than one step.
Nest From(Nest nest, Axes axes) {
  while (!nest.empty() &&
         (nest[0].count == 1 || (nest[0].out_stride == 0) != (axes == Axes::kReduced))) {
    nest = nest.subspan(1);
  }
  return nest;
}

class Summation {
 public:
  Summation(const ByteSumParams& params, Nest all, const RowLoops& loops)
      : params_(params), all_(all), loops_(loops) {
    uint32_t summed = 1;
    for (const ReduceLoop& loop : all) {
      if (loop.out_stride == 0) summed *= static_cast<uint32_t>(loop.count);
    }
    flip_ = params.type == ByteType::kInt8 ? 0x80 : 0;
    const uint32_t zeros = (static_cast<uint32_t>(params.input_zero_point) + flip_) * summed;
    scaling_ = {.input_zero_point = static_cast<int32_t>(zeros),
                .multiplier = params.multiplier.value,
                .exponent = params.multiplier.exponent};
  }

  void Run(const uint8_t* input, uint8_t* output) const {
    Run(From(all_, Axes::kKept), input, output);
  }

 private:
  // One output after the other, for the kept ones of `nest`.
  [[gnu::noinline]] void Run(Nest nest, const uint8_t* input, uint8_t* output) const {
    const ReduceLoop loop = nest.empty() ? ReduceLoop() : nest[0];
    const Nest inner = nest.empty() ? nest : From(nest.subspan(1), Axes::kKept);
    if (inner.empty()) {
      for (int64_t i = 0; i < loop.count; i += kBlock) {
        SumBlock(input + i * loop.in_stride, std::min(kBlock, loop.count - i), loop.in_stride,
                 output + i);
      }
      return;
    }
    for (int64_t i = 0; i < loop.count; ++i) {
      Run(inner, input + i * loop.in_stride, output + i * loop.out_stride);
    }
  }

  // `count` neighbouring outputs, whose inputs begin `step` elements apart.
  void SumBlock(const uint8_t* input, int64_t count, int64_t step, uint8_t* output) const {
    uint32_t sums[kBlock];
    std::fill_n(sums, count, 0u);
    AddElements(From(all_, Axes::kReduced), input, count, step, sums);
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(sums);
    loops_.requantize(Element::kInt32, Element::kInt32)(scaling_, bytes, bytes, count);
    const uint32_t zero_point = static_cast<uint32_t>(params_.output_zero_point);
    const ClampRange clamp = params_.clamp;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t value = static_cast<int32_t>(sums[i] + zero_point);
      output[i] = static_cast<uint8_t>(Clamp(value, clamp.min, clamp.max));
    }
  }

  // sums[i] += the elements from input + i * step on that the reduced ones of `nest` walk over, for
  // i < count. `nest` begins with a reduced loop or is empty. The innermost loop of all takes steps
  // of one element: that of the outputs unless a reduced one does.
  void AddElements(Nest nest, const uint8_t* input, int64_t count, int64_t step,
                   uint32_t* sums) const {
    const ReduceLoop loop = nest.empty() ? ReduceLoop() : nest[0];
    const Nest inner = nest.empty() ? nest : From(nest.subspan(1), Axes::kReduced);
    if (!inner.empty()) {
      for (int64_t k = 0; k < loop.count; ++k) {
        AddElements(inner, input + k * loop.in_stride, count, step, sums);
      }
    } else if (loop.in_stride == 1) {
      loops_.add_rows(input, count, loop.count, step, flip_, sums);
    } else {
      for (int64_t k = 0; k < loop.count; k += kMaxCellsOfSum) {
        uint16_t some[kBlock];
        loops_.sums_of_window({.cells = input + k * loop.in_stride,
                               .columns = std::min(kMaxCellsOfSum, loop.count - k),
                               .column_bytes = loop.in_stride},
                              flip_, count, some);
        for (int64_t i = 0; i < count; ++i) sums[i] += some[i];
      }
    }
  }

  const ByteSumParams& params_;
  const Nest all_;  // of the plan
  const RowLoops& loops_;
  uint8_t flip_;
  RequantizeParams scaling_;  // what is too much in each sum, and the multiplier
};

}  // namespace

void ByteSum(const ByteSumParams& params, std::span<const ReduceLoop> nest, const RowLoops& loops,
             const uint8_t* input, uint8_t* output) {
  Summation(params, nest, loops).Run(input, output);
}

}  // namespace atollrt
