// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/byte_sum.h"

#include <algorithm>

namespace atollrt {
namespace {

using Loops = std::span<const ReduceLoop>;

// Outputs that lie next to each other are summed in blocks whose sums stay in the first-level
// cache.
constexpr int64_t kBlock = 256;

enum class Axes { kKept, kReduced };

// `loops` from the first one on that is of these axes and takes more than one step.
Loops From(Loops loops, Axes axes) {
  while (!loops.empty() &&
         (loops[0].count == 1 || (loops[0].out_stride == 0) != (axes == Axes::kReduced))) {
    loops = loops.subspan(1);
  }
  return loops;
}

class Summation {
 public:
  Summation(const ByteSumParams& params, Loops all) : params_(params), all_(all) {
    uint32_t summed = 1;
    for (const ReduceLoop& loop : all) {
      if (loop.out_stride == 0) summed *= static_cast<uint32_t>(loop.count);
    }
    const bool is_signed = params.type == ByteType::kInt8;
    flip_ = is_signed ? 0x80 : 0;
    zeros_ = (static_cast<uint32_t>(params.input_zero_point) + flip_) * summed;
  }

  void Run(const uint8_t* input, uint8_t* output) const {
    Run(From(all_, Axes::kKept), input, output);
  }

 private:
  // One output after the other, for the kept ones of `loops`.
  void Run(Loops loops, const uint8_t* input, uint8_t* output) const {
    const ReduceLoop loop = loops.empty() ? ReduceLoop() : loops[0];
    const Loops inner = loops.empty() ? loops : From(loops.subspan(1), Axes::kKept);
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
    for (int64_t i = 0; i < count; ++i) {
      const int32_t scaled =
          MultiplyByQuantizedMultiplier(static_cast<int32_t>(sums[i] - zeros_), params_.multiplier);
      const uint32_t value =
          static_cast<uint32_t>(scaled) + static_cast<uint32_t>(params_.output_zero_point);
      output[i] = static_cast<uint8_t>(
          Clamp(static_cast<int32_t>(value), params_.clamp.min, params_.clamp.max));
    }
  }

  // sums[i] += the elements from input + i * step on that the reduced ones of `loops` walk over,
  // for i < count. `loops` begins with a reduced one or is empty.
  void AddElements(Loops loops, const uint8_t* input, int64_t count, int64_t step,
                   uint32_t* sums) const {
    if (loops.empty()) return AddRow(input, count, step, sums);
    const ReduceLoop loop = loops[0];
    const Loops inner = From(loops.subspan(1), Axes::kReduced);
    if (!inner.empty()) {
      for (int64_t k = 0; k < loop.count; ++k) {
        AddElements(inner, input + k * loop.in_stride, count, step, sums);
      }
    } else if (loop.in_stride != 1) {
      for (int64_t k = 0; k < loop.count; ++k) {
        AddRow(input + k * loop.in_stride, count, step, sums);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        uint32_t sum = 0;
        for (int64_t k = 0; k < loop.count; ++k) sum += Value(input[i * step + k]);
        sums[i] += sum;
      }
    }
  }

  // sums[i] += input[i * step] for i < count.
  void AddRow(const uint8_t* input, int64_t count, int64_t step, uint32_t* sums) const {
    if (step == 1) {
      for (int64_t i = 0; i < count; ++i) sums[i] += Value(input[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) sums[i] += Value(input[i * step]);
    }
  }

  // Of an int8, 128 more than it is.
  uint32_t Value(uint8_t byte) const { return static_cast<uint8_t>(byte ^ flip_); }

  const ByteSumParams& params_;
  const Loops all_;  // of the plan
  uint8_t flip_;
  uint32_t zeros_;  // what is too much in each sum
};

}  // namespace

void ByteSum(const ByteSumParams& params, std::span<const ReduceLoop> loops, const uint8_t* input,
             uint8_t* output) {
  Summation(params, loops).Run(input, output);
}

}  // namespace atollrt
