// SPDX-License-Identifier: Apache-2.0
//
// UNIDIRECTIONAL_SEQUENCE_LSTM with int8 activations and weights and an int16 cell, without
// peephole, projection, layer normalization and coupled gates (docs/quantization.md, "Recurrent
// layers"). Per step and gate,
//
//   a = sat16(MBQM(W x + input_bias))
//   a = sat16(MBQM(R h + recurrent_bias) + a)             scale 2^-12
//   i, f, o = logistic(a);  g = tanh(a)                   scale 2^-15
//   c = sat16(RDPOT(f c, 15) + RDPOT(i g, 15 + k)), clipped
//   h = clamp(MBQM(o * tanh(c)) + zero_point)             and the output of the step
//
// Pure function, thread-safe, allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/kernels/quantization.h"

namespace atollrt {

struct LstmGate {
  const int8_t* input_weights = nullptr;      // [units, inputs]
  const int8_t* recurrent_weights = nullptr;  // [units, units]
  std::vector<int32_t> input_bias;            // zero points folded in
  std::vector<int32_t> recurrent_bias;
  Multiplier input_multiplier;
  Multiplier recurrent_multiplier;
};

enum class LstmLayout : uint8_t { kBatchMajor, kTimeMajor };

struct LstmParams {
  int32_t batch = 1;  // sizes are at least 1
  int32_t steps = 1;
  int32_t inputs = 1;
  int32_t units = 1;
  LstmLayout layout = LstmLayout::kBatchMajor;
  LstmGate input, forget, cell, output;
  int32_t cell_integer_bits = 0;  // k of the cell state, whose scale is 2^(k - 15); 0 to 6
  int32_t cell_clip = 0;          // of raw values; 0: none
  Multiplier hidden_multiplier;
  int32_t hidden_zero_point = 0;
};

size_t LstmScratchBytes(const LstmParams& params);

// `x` is [batch, steps, inputs] or, time-major, [steps, batch, inputs], `y` the same with units.
// `hidden` and `cell` are [batch, units]: the state before and after. `scratch` is aligned to 64.
void Lstm(const LstmParams& params, const int8_t* x, int8_t* hidden, int16_t* cell, int8_t* y,
          uint8_t* scratch);

}  // namespace atollrt
