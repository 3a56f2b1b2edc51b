// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers (docs/quantization.md, "Recurrent layers"). Pure functions, thread-safe,
// allocate nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// ---- LSTM ---------------------------------------------------------------------------------------
//
// UNIDIRECTIONAL_SEQUENCE_LSTM with int8 activations and weights and an int16 cell, without
// peephole, projection, layer normalization and coupled gates. Per step and gate,
//
//   a = sat16(MBQM(W x + bias))
//   a = sat16(MBQM(R h + bias) + a)                       scale 2^-12
//   i, f, o = logistic(a);  g = tanh(a)                   scale 2^-15
//   c = sat16(RDPOT(f c, 15) + RDPOT(i g, 15 + k)), clipped
//   h = clamp(MBQM(o * tanh(c)) + zero_point)             and the output of the step

// Gates have this order everywhere.
enum class LstmGate : uint8_t { kInput, kForget, kCell, kOutput };
inline constexpr size_t kLstmGates = 4;

// One of the two matrix products of a step, for all gates.
struct LstmProduct {
  std::array<const int8_t*, kLstmGates> weights{};  // of each gate: [units, inputs or units]
  // [gates, units]: bias, with the zero point of the operand folded in, and multiplier.
  std::vector<OutputChannel> channels;
};

enum class LstmLayout : uint8_t { kBatchMajor, kTimeMajor };

struct LstmParams {
  int32_t batch = 1;  // sizes are at least 1
  int32_t steps = 1;
  int32_t inputs = 1;
  int32_t units = 1;
  LstmLayout layout = LstmLayout::kBatchMajor;
  LstmProduct input, recurrent;
  int32_t cell_integer_bits = 0;  // k of the cell state, whose scale is 2^(k - 15); 0 to 6
  int32_t cell_clip = 0;          // of raw values; 0: none
  Multiplier hidden_multiplier;
  int32_t hidden_zero_point = 0;
};

size_t LstmScratchBytes(const LstmParams& params);

// `x` is [batch, steps, inputs] or, time-major, [steps, batch, inputs], `y` the same with units.
// `hidden` and `cell` are [batch, units]: the state before and after; `cell` holds int16 at any
// alignment. `scratch` is aligned to 64.
void Lstm(const LstmParams& params, const int8_t* x, int8_t* hidden, uint8_t* cell, int8_t* y,
          uint8_t* scratch);

// ---- SVDF ---------------------------------------------------------------------------------------
//
// A layer whose weights are factored into features (over the inputs of one step) and time (over the
// last `memory` results), int8 with an int16 state:
//
//   shift each filter's state by one; newest = sat16(MBQM(sum of features * (x - zero point)))
//   y = clamp(MBQM(sum over the rank's filters of state * time + bias) + output_zero_point)

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
