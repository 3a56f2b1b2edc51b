// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/float_lstm.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr auto kGates = static_cast<int64_t>(kLstmGates);

uint8_t* Bytes(float* values) { return reinterpret_cast<uint8_t*>(values); }

// One gate after the other, `floats` of each.
Result<Buffer> AllGates(const std::array<const uint8_t*, kLstmGates>& gates, int64_t floats) {
  const auto bytes = static_cast<size_t>(floats) * sizeof(float);
  ATOLL_ASSIGN_OR_RETURN(Buffer all, Buffer::Allocate(bytes * kLstmGates));
  for (size_t gate = 0; gate < kLstmGates; ++gate) {
    std::memcpy(all.data() + gate * bytes, gates[gate], bytes);
  }
  return all;
}

}  // namespace

Result<FloatLstm> FloatLstm::Prepare(const FloatLstmParams& params, CpuFeatures features) {
  const int64_t units = params.units;
  ATOLL_ASSIGN_OR_RETURN(const Buffer input_weights,
                         AllGates(params.input_weights, units * params.inputs));
  ATOLL_ASSIGN_OR_RETURN(const Buffer bias, AllGates(params.bias, units));
  Conv2DFloatParams rows;
  rows.shape.batch = params.batch * params.steps;
  rows.shape.input_c = params.inputs;
  rows.shape.output_c = static_cast<int32_t>(kGates * units);
  rows.weights = input_weights.data();
  rows.bias = bias.data();
  ATOLL_ASSIGN_OR_RETURN(FloatConv inputs, FloatConv::Prepare(rows, features));

  FloatLstm lstm(std::move(inputs));
  lstm.params_ = params;
  lstm.params_.input_weights = lstm.params_.recurrent_weights = lstm.params_.bias = {};
  lstm.products_ = &ChooseFloatProducts(features);
  lstm.loops_ = &ChooseFloatLoops(features);
  ATOLL_ASSIGN_OR_RETURN(const Buffer recurrent, AllGates(params.recurrent_weights, units * units));
  ATOLL_ASSIGN_OR_RETURN(
      lstm.recurrent_,
      Buffer::Allocate(static_cast<size_t>(lstm.products_->packed_floats(kGates * units, units)) *
                       sizeof(float)));
  lstm.products_->pack(reinterpret_cast<const float*>(recurrent.data()), kGates * units, units,
                       reinterpret_cast<float*>(lstm.recurrent_.data()));
  return lstm;
}

size_t FloatLstm::SumsBytes() const {
  const int64_t rows = int64_t{params_.batch} * params_.steps;
  return AlignUp(static_cast<size_t>(rows * kGates * params_.units) * sizeof(float),
                 Buffer::kAlignment);
}

size_t FloatLstm::ScratchBytes(int threads) const {
  // What the state is multiplied with comes after the inputs' turn.
  return SumsBytes() +
         std::max(inputs_.ScratchBytes(threads),
                  static_cast<size_t>(products_->scratch_floats(params_.units)) * sizeof(float));
}

void FloatLstm::Activate(const float* x, float* y) const {
  if (params_.has_tanh) {
    loops_->map(FloatMap::kTanh)(reinterpret_cast<const uint8_t*>(x), Bytes(y), params_.units);
    return;
  }
  for (int32_t u = 0; u < params_.units; ++u) {
    y[u] = std::min(std::max(x[u], params_.clamp_min), params_.clamp_max);
  }
}

void FloatLstm::Step(float* gates, float* hidden, float* cell, float* y) const {
  const int32_t units = params_.units;
  float* const input = gates;
  float* const forget = gates + units;
  float* const candidate = gates + int64_t{2} * units;
  float* const output = gates + int64_t{3} * units;
  const FloatMapFn logistic = loops_->map(FloatMap::kLogistic);
  logistic(Bytes(input), Bytes(input), int64_t{2} * units);
  logistic(Bytes(output), Bytes(output), units);
  Activate(candidate, candidate);
  for (int32_t u = 0; u < units; ++u) cell[u] = forget[u] * cell[u] + input[u] * candidate[u];
  if (const float clip = params_.cell_clip; clip > 0) {
    for (int32_t u = 0; u < units; ++u) cell[u] = std::min(std::max(cell[u], -clip), clip);
  }
  Activate(cell, candidate);
  for (int32_t u = 0; u < units; ++u) hidden[u] = output[u] * candidate[u];
  std::memcpy(y, hidden, static_cast<size_t>(units) * sizeof(float));
}

void FloatLstm::Run(const uint8_t* x, float* hidden, float* cell, float* y, uint8_t* scratch,
                    ThreadPool* pool) const {
  const int64_t units = params_.units;
  const int64_t row_floats = kGates * units;
  float* const sums = reinterpret_cast<float*>(scratch);
  uint8_t* const rest = scratch + SumsBytes();
  inputs_.Run(x, scratch, rest, pool);
  // Rows lie as in x: those of a sequence follow each other, or those of a step.
  const bool is_time_major = params_.layout == LstmLayout::kTimeMajor;
  const int64_t sequence_rows = is_time_major ? 1 : params_.steps;
  const int64_t step_rows = is_time_major ? params_.batch : 1;
  for (int64_t step = 0; step < params_.steps; ++step) {
    for (int64_t first = 0; first < params_.batch; first += kProductColumns) {
      const int64_t count = std::min(kProductColumns, params_.batch - first);
      products_->multiply(reinterpret_cast<const float*>(recurrent_.data()), row_floats, units,
                          hidden + first * units, units, count,
                          sums + (first * sequence_rows + step * step_rows) * row_floats,
                          sequence_rows * row_floats, reinterpret_cast<float*>(rest));
    }
    for (int64_t sequence = 0; sequence < params_.batch; ++sequence) {
      const int64_t row = sequence * sequence_rows + step * step_rows;
      Step(sums + row * row_floats, hidden + sequence * units, cell + sequence * units,
           y + row * units);
    }
  }
}

}  // namespace atollrt
