// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/recurrent.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/quantization/fixed_point.h"
#include "runtime/kernels/scratch.h"

namespace atollrt {
namespace {

// The gates of one step, [units] each.
using Gates = std::array<int16_t*, kLstmGates>;

Gates TakeGates(const LstmParams& p, Scratch* scratch) {
  Gates gates;
  for (int16_t*& gate : gates) gate = scratch->Take<int16_t>(p.units);
  return gates;
}

// sum of a * b, plus `bias`, modulo 2^32.
int32_t DotProduct(const int8_t* a, const int8_t* b, int32_t count, int32_t bias) {
  uint32_t sum = static_cast<uint32_t>(bias);
  for (int32_t i = 0; i < count; ++i) sum += static_cast<uint32_t>(a[i] * b[i]);
  return static_cast<int32_t>(sum);
}

void Preactivation(const LstmParams& p, size_t g, const int8_t* x, const int8_t* hidden,
                   int16_t* a) {
  const int8_t* const input_weights = p.input.weights[g];
  const int8_t* const recurrent_weights = p.recurrent.weights[g];
  for (int32_t u = 0; u < p.units; ++u) {
    const size_t row = g * static_cast<size_t>(p.units) + static_cast<size_t>(u);
    const OutputChannel& input = p.input.channels[row];
    const OutputChannel& recurrent = p.recurrent.channels[row];
    const int32_t from_input = SaturateToInt16(MultiplyByQuantizedMultiplier(
        DotProduct(input_weights + int64_t{u} * p.inputs, x, p.inputs, input.bias),
        input.multiplier));
    const int32_t from_hidden = MultiplyByQuantizedMultiplier(
        DotProduct(recurrent_weights + int64_t{u} * p.units, hidden, p.units, recurrent.bias),
        recurrent.multiplier);
    // In 64 bits, where the sum cannot wrap.
    a[u] = static_cast<int16_t>(SaturateToInt16(int64_t{from_hidden} + from_input));
  }
}

void Step(const LstmParams& p, const Gates& gates, const int8_t* x, int8_t* hidden, uint8_t* cell) {
  for (size_t g = 0; g < kLstmGates; ++g) Preactivation(p, g, x, hidden, gates[g]);
  const auto [input, forget, cell_input, output] = gates;
  for (int32_t u = 0; u < p.units; ++u, cell += sizeof(int16_t)) {
    const int32_t i = FixedPointLogistic16(input[u]);
    const int32_t f = FixedPointLogistic16(forget[u]);
    const int32_t g = FixedPointTanh16(cell_input[u], 3);
    const int32_t o = FixedPointLogistic16(output[u]);
    const int32_t kept = RoundingDivideByPowerOfTwo(f * LoadLittleEndian<int16_t>(cell), 15);
    const int32_t added = RoundingDivideByPowerOfTwo(i * g, 15 + p.cell_integer_bits);
    int32_t c = SaturateToInt16(kept + added);
    if (p.cell_clip > 0) c = Clamp(c, -p.cell_clip, p.cell_clip);
    StoreLittleEndian(cell, static_cast<int16_t>(c));
    const int32_t t = FixedPointTanh16(static_cast<int16_t>(c), p.cell_integer_bits);
    const int64_t h =
        int64_t{MultiplyByQuantizedMultiplier(o * t, p.hidden_multiplier)} + p.hidden_zero_point;
    hidden[u] = static_cast<int8_t>(std::clamp<int64_t>(h, INT8_MIN, INT8_MAX));
  }
}

}  // namespace

size_t LstmScratchBytes(const LstmParams& params) {
  Scratch scratch(nullptr);
  TakeGates(params, &scratch);
  return scratch.size();
}

void Lstm(const LstmParams& p, const int8_t* x, int8_t* hidden, uint8_t* cell, int8_t* y,
          uint8_t* scratch) {
  Scratch arrays(scratch);
  const Gates gates = TakeGates(p, &arrays);
  for (int32_t b = 0; b < p.batch; ++b) {
    int8_t* const h = hidden + int64_t{b} * p.units;
    uint8_t* const c = cell + int64_t{b} * p.units * int64_t{sizeof(int16_t)};
    for (int32_t s = 0; s < p.steps; ++s) {
      const int64_t row =
          p.layout == LstmLayout::kTimeMajor ? int64_t{s} * p.batch + b : int64_t{b} * p.steps + s;
      Step(p, gates, x + row * p.inputs, h, c);
      std::memcpy(y + row * p.units, h, static_cast<size_t>(p.units));
    }
  }
}

// ---- SVDF ---------------------------------------------------------------------------------------
namespace {

// Sums are taken modulo 2^32.

void Remember(const SvdfParams& p, int32_t filter, const int8_t* x, int16_t* state) {
  std::memmove(state, state + 1, static_cast<size_t>(p.memory - 1) * sizeof(int16_t));
  const int8_t* features = p.features + int64_t{filter} * p.inputs;
  uint32_t sum = 0;
  for (int32_t i = 0; i < p.inputs; ++i) {
    sum += static_cast<uint32_t>(features[i] * (x[i] - p.input_zero_point));
  }
  state[p.memory - 1] = static_cast<int16_t>(SaturateToInt16(
      MultiplyByQuantizedMultiplier(static_cast<int32_t>(sum), p.feature_multiplier)));
}

uint32_t WeightedByTime(const SvdfParams& p, int32_t filter, const int16_t* state) {
  const uint8_t* time = p.time + int64_t{filter} * p.memory * 2;
  uint32_t sum = 0;
  for (int32_t i = 0; i < p.memory; ++i) {
    sum += static_cast<uint32_t>(state[i] * LoadLittleEndian<int16_t>(time + 2 * int64_t{i}));
  }
  return sum;
}

}  // namespace

void Svdf(const SvdfParams& p, const int8_t* x, int16_t* state, int8_t* y) {
  for (int32_t b = 0; b < p.batch; ++b) {
    for (int32_t u = 0; u < p.units; ++u) {
      uint32_t sum =
          p.bias == nullptr
              ? 0
              : static_cast<uint32_t>(LoadLittleEndian<int32_t>(p.bias + 4 * int64_t{u}));
      for (int32_t r = 0; r < p.rank; ++r) {
        Remember(p, u * p.rank + r, x, state);
        sum += WeightedByTime(p, u * p.rank + r, state);
        state += p.memory;
      }
      const int64_t scaled =
          int64_t{MultiplyByQuantizedMultiplier(static_cast<int32_t>(sum), p.output_multiplier)} +
          p.output_zero_point;
      *y++ = static_cast<int8_t>(std::clamp<int64_t>(scaled, INT8_MIN, INT8_MAX));
    }
    x += p.inputs;
  }
}

}  // namespace atollrt
