// SPDX-License-Identifier: Apache-2.0
//
// UNIDIRECTIONAL_SEQUENCE_LSTM of float32, without peephole, projection, layer normalization and
// coupled gates. Per step, with W and R the weights of a gate:
//
//   i, f, o = logistic(W x + R h + bias);  g = activation(W x + R h + bias)
//   c = f c + i g, clipped
//   h = o * activation(c)                  and the output of the step
//
// Pure functions, thread-safe, allocate nothing. Part of libatoll, not of libatoll-core.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/float_loops/float_loops.h"
#include "runtime/kernels/recurrent.h"

namespace atollrt {

struct FloatLstmParams {
  int32_t batch = 1;  // sizes are at least 1
  int32_t steps = 1;
  int32_t inputs = 1;
  int32_t units = 1;
  LstmLayout layout = LstmLayout::kBatchMajor;
  // Of each gate, at any alignment: [units, inputs], [units, units] and [units].
  std::array<const uint8_t*, kLstmGates> input_weights{}, recurrent_weights{}, bias{};
  bool has_tanh = true;  // otherwise the activation clamps
  float clamp_min = 0, clamp_max = 0;
  float cell_clip = 0;  // 0: none
  const FloatLoops* loops = nullptr;
};

size_t FloatLstmScratchBytes(const FloatLstmParams& params);

// `x` is [batch, steps, inputs] or, time-major, [steps, batch, inputs], `y` the same with units.
// `hidden` and `cell` are [batch, units]: the state before and after. All but `x` are aligned to
// floats, `scratch` to 64.
void FloatLstm(const FloatLstmParams& params, const uint8_t* x, float* hidden, float* cell,
               float* y, uint8_t* scratch, ThreadPool* pool);

}  // namespace atollrt
