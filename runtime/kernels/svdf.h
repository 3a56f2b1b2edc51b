// SPDX-License-Identifier: Apache-2.0
//
// SVDF: a layer whose weights are factored into features (over the inputs of one step) and time
// (over the last `memory` results), int8 with an int16 state (docs/quantization.md, "Recurrent
// layers"):
//
//   shift each filter's state by one; newest = sat16(MBQM(sum of features * (x - zero point)))
//   y = clamp(MBQM(sum over the rank's filters of state * time + bias) + output_zero_point)
//
// Pure function, thread-safe, allocates nothing.
#pragma once

#include <cstdint>

#include "runtime/kernels/quantization.h"

namespace atollrt {

struct SvdfParams {
  int32_t batch = 1;  // sizes are at least 1
  int32_t inputs = 1;
  int32_t units = 1;
  int32_t rank = 1;  // filters per unit
  int32_t memory = 1;
  const int8_t* features = nullptr;  // [units * rank, inputs]
  const uint8_t* time = nullptr;     // [units * rank, memory] int16, any alignment
  const uint8_t* bias = nullptr;     // [units] int32, any alignment; nullptr: zeros
  int32_t input_zero_point = 0;
  Multiplier feature_multiplier;
  Multiplier output_multiplier;
  int32_t output_zero_point = 0;
};

// `x` is [batch, inputs], `state` [batch, units * rank, memory], `y` [batch, units].
void Svdf(const SvdfParams& params, const int8_t* x, int16_t* state, int8_t* y);

}  // namespace atollrt
