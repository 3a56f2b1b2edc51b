// SPDX-License-Identifier: Apache-2.0
//
// Random parameters of operators of two tensors (pairs.h), for property tests.
#pragma once

#include <algorithm>
#include <cmath>

#include "runtime/kernels/pairs/pairs.h"
#include "tests/runtime/kernels/random_conv.h"

namespace atollrt {

// As TensorFlow Lite computes them, or now and then anything.
inline PairParams RandomPairParams(Rng* rng, PairOp op) {
  PairParams p;
  p.op = op;
  p.type = RandomType(rng);
  p.input1_zero_point = RandomZeroPoint(rng, p.type);
  p.input2_zero_point = RandomZeroPoint(rng, p.type);
  p.output_zero_point = RandomZeroPoint(rng, p.type);
  p.clamp = {ByteMin(p.type), ByteMax(p.type)};
  if (rng->OneIn(3)) p.clamp.min = rng->Int32(p.clamp.min, p.clamp.max);
  const double scale1 = 0.01 + rng->Real();
  const double scale2 = rng->OneIn(4) ? scale1 : 0.01 + rng->Real();
  const double output_scale = 0.01 + 2 * rng->Real();
  const double twice = 2 * std::max(scale1, scale2);
  if (op == PairOp::kMultiply || op == PairOp::kPrelu) {
    p.input1 = QuantizeMultiplier(scale1 / output_scale);
    p.output = QuantizeMultiplier(scale1 * scale2 / output_scale);
  } else {
    const bool squares = op == PairOp::kSquaredDifference;
    p.left_shift = squares ? 7 : 20;
    p.input1 = QuantizeMultiplier(scale1 / twice);
    p.input2 = QuantizeMultiplier(scale2 / twice);
    p.output = QuantizeMultiplier((squares ? twice * twice : twice) /
                                  (std::ldexp(output_scale, squares ? 14 : 20)));
  }
  if (rng->OneIn(4)) {
    for (Multiplier* m : {&p.input1, &p.input2, &p.output}) {
      *m = rng->Pick<Multiplier>({*m,
                                  {INT32_MAX, rng->Int32(-31, 3)},
                                  {1 << 30, rng->Int32(-31, 3)},
                                  {rng->Int32(0, INT32_MAX), rng->Int32(0, 127)},
                                  {INT32_MAX, rng->Int32(13, 16)},
                                  {1 << 30, -31},
                                  {0, 0}});
    }
    p.left_shift = rng->Pick<int32_t>({20, 20, 0, 1, 7, 8, 15, 24});
  }
  return p;
}

inline PairTail RandomPairTail(Rng* rng) {
  const PairOp op = rng->Pick({PairOp::kAdd, PairOp::kSubtract, PairOp::kMultiply});
  const std::vector<CpuFeatures> levels = AvailableCpuLevels();
  return {.combine = ChoosePairs(levels[static_cast<size_t>(rng->Int(0, std::ssize(levels) - 1))]),
          .params = RandomPairParams(rng, op),
          .is_second = rng->OneIn(2)};
}

// What a tail makes of the bytes of its kernel.
inline std::vector<uint8_t> ReferenceTail(const PairTail& tail, const std::vector<uint8_t>& x,
                                          const uint8_t* other) {
  std::vector<uint8_t> y(x.size());
  CombinePairsReference(tail.params, tail.is_second ? other : x.data(),
                        tail.is_second ? x.data() : other, y.data(), std::ssize(x));
  return y;
}

}  // namespace atollrt
