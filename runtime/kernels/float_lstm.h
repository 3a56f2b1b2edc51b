// SPDX-License-Identifier: Apache-2.0
//
// UNIDIRECTIONAL_SEQUENCE_LSTM of float32, without peephole, projection, layer normalization and
// coupled gates. Per step, with W and R the weights of a gate:
//
//   i, f, o = logistic(W x + R h + bias);  g = activation(W x + R h + bias)
//   c = f c + i g, clipped
//   h = o * activation(c)                  and the output of the step
//
// The products are those of matrices (float_products). Part of libatoll, not of libatoll-core.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/float_conv.h"
#include "runtime/kernels/float_loops/float_loops.h"
#include "runtime/kernels/float_products/float_products.h"
#include "runtime/kernels/recurrent.h"

namespace atollrt {

struct FloatLstmParams {
  int32_t batch = 1;  // sizes are at least 1
  int32_t steps = 1;
  int32_t inputs = 1;
  int32_t units = 1;
  LstmLayout layout = LstmLayout::kBatchMajor;
  // Of each gate, at any alignment, borrowed during Prepare only: [units, inputs], [units, units]
  // and [units].
  std::array<const uint8_t*, kLstmGates> input_weights{}, recurrent_weights{}, bias{};
  bool has_tanh = true;  // otherwise the activation clamps
  float clamp_min = 0, clamp_max = 0;
  float cell_clip = 0;  // 0: none
};

// Immutable after Prepare; several threads may run one object, each with its own scratch.
class FloatLstm {
 public:
  // Packs the weights. kResourceExhausted if they do not fit memory.
  static Result<FloatLstm> Prepare(const FloatLstmParams& params, CpuFeatures features);

  // Bytes of scratch that Run needs with a pool of `threads` threads.
  size_t ScratchBytes(int threads) const;

  // `x` is [batch, steps, inputs] or, time-major, [steps, batch, inputs], `y` the same with units.
  // `hidden` and `cell` are [batch, units]: the state before and after. All but `x` are aligned to
  // floats, `scratch` to Buffer::kAlignment. `pool` may be nullptr.
  void Run(const uint8_t* x, float* hidden, float* cell, float* y, uint8_t* scratch,
           ThreadPool* pool) const;

 private:
  explicit FloatLstm(FloatConv inputs) : inputs_(std::move(inputs)) {}
  size_t SumsBytes() const;
  void Activate(const float* x, float* y) const;
  // One step of one sequence, with the sums of its gates, which are overwritten.
  void Step(float* gates, float* hidden, float* cell, float* y) const;

  FloatLstmParams params_;  // without weights
  FloatConv inputs_;        // all gates' products with x, and their biases
  const FloatProducts* products_ = nullptr;
  const FloatLoops* loops_ = nullptr;
  Buffer recurrent_;  // packed, of all gates
};

}  // namespace atollrt
