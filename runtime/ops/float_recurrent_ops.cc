// SPDX-License-Identifier: Apache-2.0
//
// UNIDIRECTIONAL_SEQUENCE_LSTM of float32.
#include <memory>
#include <utility>

#include "runtime/kernels/float_lstm.h"
#include "runtime/ops/apart_executors.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/recurrent_params.h"

namespace atollrt {
namespace {

constexpr size_t kInputWeights = 1, kRecurrentWeights = 5, kBias = 12;

Status CheckFloats(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Tensor* tensor = graph.Input(node, i);
    if (tensor == nullptr || tensor->type == DataType::kFloat32) continue;
    return Unsupported(
        "input %zu has type %s, but input 0 has type float32; layers that mix them "
        "are not computed",
        i, DataTypeName(tensor->type));
  }
  for (const size_t first : {kInputWeights, kRecurrentWeights, kBias}) {
    for (size_t gate = 0; gate < kLstmGates; ++gate) {
      if (graph.Input(node, first + gate)->is_constant()) continue;
      return Unsupported("input %zu is no constant", first + gate);
    }
  }
  for (const size_t state : {kLstmHidden, kLstmCell}) {
    if (!graph.Input(node, state)->is_variable) {
      return CorruptModel("input %zu is its state, but no variable tensor", state);
    }
  }
  if (graph.Output(node).type == DataType::kFloat32) return Status();
  return CorruptModel("output has type %s, must be float32", DataTypeName(graph.Output(node).type));
}

float* Floats(uint8_t* aligned) { return reinterpret_cast<float*>(aligned); }

}  // namespace

Executor PrepareFloatLstm(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckFloats(graph, node));
  const LstmOptions& options = std::get<LstmOptions>(node.options);
  const Shape& x = graph.Input(node, 0)->shape;
  FloatLstmParams params;
  params.layout = options.time_major ? LstmLayout::kTimeMajor : LstmLayout::kBatchMajor;
  params.batch = x[options.time_major ? 1 : 0];
  params.steps = x[options.time_major ? 0 : 1];
  params.inputs = x[2];
  params.units = graph.Output(node).shape[2];
  params.has_tanh = options.activation == Activation::kTanh;
  if (!params.has_tanh) {
    ATOLL_ASSIGN_OR_RETURN(const ValueClamp<float> clamp,
                           FusedValueClamp<float>(options.activation));
    params.clamp_min = clamp.min;
    params.clamp_max = clamp.max;
  }
  params.cell_clip = options.cell_clip;
  for (size_t gate = 0; gate < kLstmGates; ++gate) {
    params.input_weights[gate] = graph.Input(node, kInputWeights + gate)->data.data();
    params.recurrent_weights[gate] = graph.Input(node, kRecurrentWeights + gate)->data.data();
    params.bias[gate] = graph.Input(node, kBias + gate)->data.data();
  }
  ATOLL_ASSIGN_OR_RETURN(FloatLstm prepared, FloatLstm::Prepare(params, features));
  const auto lstm = std::make_shared<const FloatLstm>(std::move(prepared));
  return Run(
      [lstm](const NodeIo& io) {
        lstm->Run(io.inputs[0], Floats(io.state[kLstmHidden]), Floats(io.state[kLstmCell]),
                  Floats(io.outputs[0]), io.scratch, io.pool);
      },
      [lstm](int threads) { return lstm->ScratchBytes(threads); });
}

}  // namespace atollrt
