// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/float_lstm.h"

#include <algorithm>
#include <cstring>

namespace atollrt {
namespace {

// Rows of `x`, whose products with the input weights do not depend on the state, at a time.
constexpr int64_t kRows = 32;

struct Sizes {
  int64_t rows;       // of x: batch * steps
  int64_t gate_rows;  // of one gate
  int64_t row;        // all gates of a row
};
Sizes SizesOf(const FloatLstmParams& p) {
  return {int64_t{p.batch} * p.steps, p.units, static_cast<int64_t>(kLstmGates) * p.units};
}

uint8_t* Bytes(float* values) { return reinterpret_cast<uint8_t*>(values); }

void Activate(const FloatLstmParams& p, const float* x, float* y) {
  if (p.has_tanh) {
    p.loops->map(FloatMap::kTanh)(reinterpret_cast<const uint8_t*>(x), Bytes(y), p.units);
    return;
  }
  for (int32_t u = 0; u < p.units; ++u) {
    y[u] = std::min(std::max(x[u], p.clamp_min), p.clamp_max);
  }
}

// One step of one sequence; `gates` has the products with the inputs, and is overwritten.
void Step(const FloatLstmParams& p, float* gates, float* hidden, float* cell, float* y) {
  const auto* state = reinterpret_cast<const uint8_t*>(hidden);
  for (size_t gate = 0; gate < kLstmGates; ++gate) {
    p.loops->add_products(p.recurrent_weights[gate], state, p.units, p.units,
                          gates + static_cast<int64_t>(gate) * p.units);
  }
  float* const input = gates;
  float* const forget = gates + p.units;
  float* const candidate = gates + int64_t{2} * p.units;
  float* const output = gates + int64_t{3} * p.units;
  const FloatMapFn logistic = p.loops->map(FloatMap::kLogistic);
  logistic(Bytes(input), Bytes(input), int64_t{2} * p.units);
  logistic(Bytes(output), Bytes(output), p.units);
  Activate(p, candidate, candidate);
  for (int32_t u = 0; u < p.units; ++u) cell[u] = forget[u] * cell[u] + input[u] * candidate[u];
  if (p.cell_clip > 0) {
    for (int32_t u = 0; u < p.units; ++u) {
      cell[u] = std::min(std::max(cell[u], -p.cell_clip), p.cell_clip);
    }
  }
  Activate(p, cell, candidate);
  for (int32_t u = 0; u < p.units; ++u) hidden[u] = output[u] * candidate[u];
  std::memcpy(y, hidden, static_cast<size_t>(p.units) * sizeof(float));
}

}  // namespace

size_t FloatLstmScratchBytes(const FloatLstmParams& params) {
  const Sizes sizes = SizesOf(params);
  return static_cast<size_t>(std::min(sizes.rows, kRows) * sizes.row) * sizeof(float);
}

void FloatLstm(const FloatLstmParams& params, const uint8_t* x, float* hidden, float* cell,
               float* y, uint8_t* scratch, ThreadPool* pool) {
  const FloatLstmParams& p = params;
  const Sizes sizes = SizesOf(p);
  float* const gates = reinterpret_cast<float*>(scratch);
  constexpr int64_t kGrain = 1 << 16;  // products
  const int64_t least = std::max<int64_t>(1, kGrain / (sizes.row * p.inputs));
  // Rows lie as in x: those of a sequence follow each other, or those of a step.
  for (int64_t first = 0; first < sizes.rows; first += kRows) {
    const int64_t rows = std::min(kRows, sizes.rows - first);
    ParallelRanges(pool, rows, least, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (size_t gate = 0; gate < kLstmGates; ++gate) {
          float* const sums = gates + i * sizes.row + static_cast<int64_t>(gate) * p.units;
          std::memcpy(sums, p.bias[gate], static_cast<size_t>(p.units) * sizeof(float));
          p.loops->add_products(p.input_weights[gate], x + 4 * (first + i) * p.inputs, p.units,
                                p.inputs, sums);
        }
      }
    });
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = first + i;
      const int64_t sequence = p.layout == LstmLayout::kTimeMajor ? row % p.batch : row / p.steps;
      Step(p, gates + i * sizes.row, hidden + sequence * p.units, cell + sequence * p.units,
           y + row * p.units);
    }
  }
}

}  // namespace atollrt
