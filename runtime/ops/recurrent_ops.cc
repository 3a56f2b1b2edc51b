// SPDX-License-Identifier: Apache-2.0
//
// Layers with a memory on the CPU: UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF.
#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/recurrent_params.h"

namespace atollrt {
namespace {

// Input `position` has this type and exactly one positive scale.
Status CheckQuantized(const Graph& graph, const Node& node, size_t position, DataType type) {
  const Tensor& tensor = *graph.Input(node, position);
  if (tensor.type != type) {
    return Unsupported("input %zu has type %s, must be %s", position, DataTypeName(tensor.type),
                       DataTypeName(type));
  }
  if (!(tensor.scale() > 0)) {
    return CorruptModel("input %zu has %zu scales, must have 1, positive", position,
                        tensor.quantization.scales.size());
  }
  return Status();
}

// Weights are constants of zero point 0.
Status CheckStepWeights(const Graph& graph, const Node& node, size_t position, DataType type) {
  ATOLL_RETURN_IF_ERROR(CheckQuantized(graph, node, position, type));
  const Tensor& tensor = *graph.Input(node, position);
  if (!tensor.is_constant()) return Unsupported("input %zu is no constant", position);
  if (tensor.zero_point() != 0) {
    return CorruptModel("weights in input %zu have zero point %d, must be 0", position,
                        tensor.zero_point());
  }
  return Status();
}

Status CheckStepBias(const Graph& graph, const Node& node, size_t position) {
  const Tensor& tensor = *graph.Input(node, position);
  if (tensor.type != DataType::kInt32 || !tensor.is_constant()) {
    return Unsupported("bias in input %zu has type %s, must be constant int32", position,
                       DataTypeName(tensor.type));
  }
  return Status();
}

Status CheckState(const Graph& graph, const Node& node, size_t position, DataType type) {
  ATOLL_RETURN_IF_ERROR(CheckQuantized(graph, node, position, type));
  if (!graph.Input(node, position)->is_variable) {
    return CorruptModel("input %zu is its state, but no variable tensor", position);
  }
  return Status();
}

Status CheckOutput(const Graph& graph, const Node& node) {
  const Tensor& output = graph.Output(node);
  if (output.type != DataType::kInt8 || !(output.scale() > 0)) {
    return Unsupported("output has type %s and scale %g, must be int8 with a positive scale",
                       DataTypeName(output.type), static_cast<double>(output.scale()));
  }
  return Status();
}

const int8_t* AsInt8(const uint8_t* bytes) { return reinterpret_cast<const int8_t*>(bytes); }
int8_t* AsInt8(uint8_t* bytes) { return reinterpret_cast<int8_t*>(bytes); }

// Adds the part of one gate: weights in input `position`, which multiply `operand`. The bias of a
// row is that of the model, if any, less the operand's zero point times the sum of the row, modulo
// 2^32.
void AddGate(const Graph& graph, const Node& node, size_t gate, size_t position,
             const Tensor& operand, const Tensor* bias, LstmProduct* product) {
  const Tensor& weights = *graph.Input(node, position);
  constexpr float kPreactivationScale = 1.0f / 4096;
  const Multiplier multiplier = QuantizeMultiplier(
      static_cast<double>(weights.scale() * operand.scale() / kPreactivationScale));
  const int8_t* weight = product->weights[gate] = AsInt8(weights.data.data());
  for (int32_t u = 0; u < weights.shape[0]; ++u) {
    uint32_t sum = 0;
    for (int32_t i = 0; i < weights.shape[1]; ++i) sum += static_cast<uint32_t>(*weight++);
    const uint32_t start =
        bias == nullptr ? 0 : LoadLittleEndian<uint32_t>(bias->data.data() + 4 * int64_t{u});
    OutputChannel channel;
    channel.bias = static_cast<int32_t>(start - static_cast<uint32_t>(operand.zero_point()) * sum);
    channel.multiplier = multiplier;
    product->channels.push_back(channel);
  }
}

// k of a cell state of scale 2^(k - 15).
Result<int32_t> CellIntegerBits(float scale) {
  const float log2 = std::log2(scale);
  const float nearest = std::round(log2);
  if (std::abs(log2 - nearest) > 1e-3f || nearest < -15 || nearest > -9) {
    return Unsupported("the cell state has scale %g, must be a power of two from 2^-15 to 2^-9",
                       static_cast<double>(scale));
  }
  return static_cast<int32_t>(nearest) + 15;
}

}  // namespace

Result<LstmParams> MakeLstmParams(const Graph& graph, const Node& node) {
  const LstmOptions& options = std::get<LstmOptions>(node.options);
  if (options.activation != Activation::kTanh) {
    return Unsupported("fused activation %d, must be TANH", static_cast<int>(options.activation));
  }
  ATOLL_RETURN_IF_ERROR(CheckQuantized(graph, node, 0, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckState(graph, node, kLstmHidden, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckState(graph, node, kLstmCell, DataType::kInt16));
  ATOLL_RETURN_IF_ERROR(CheckOutput(graph, node));
  if (node.intermediates.size() != 5 || node.intermediates[4] < 0 ||
      !(graph.tensors[node.intermediates[4]].scale() > 0)) {
    return CorruptModel("it has no fifth intermediate with the scale of the hidden value");
  }
  const Tensor& hidden = graph.tensors[node.intermediates[4]];
  if (hidden.zero_point() < INT8_MIN || hidden.zero_point() > INT8_MAX) {
    return CorruptModel("the hidden value has zero point %d, must be -128 to 127",
                        hidden.zero_point());
  }
  const Tensor& cell = *graph.Input(node, kLstmCell);
  const Shape& x = graph.Input(node, 0)->shape;
  LstmParams p;
  p.layout = options.time_major ? LstmLayout::kTimeMajor : LstmLayout::kBatchMajor;
  p.batch = x[options.time_major ? 1 : 0];
  p.steps = x[options.time_major ? 0 : 1];
  p.inputs = x[2];
  p.units = graph.Output(node).shape[2];
  for (size_t gate = 0; gate < kLstmGates; ++gate) {
    ATOLL_RETURN_IF_ERROR(CheckStepWeights(graph, node, 1 + gate, DataType::kInt8));
    ATOLL_RETURN_IF_ERROR(CheckStepWeights(graph, node, 5 + gate, DataType::kInt8));
    ATOLL_RETURN_IF_ERROR(CheckStepBias(graph, node, 12 + gate));
    AddGate(graph, node, gate, 1 + gate, *graph.Input(node, 0), graph.Input(node, 12 + gate),
            &p.input);
    AddGate(graph, node, gate, 5 + gate, *graph.Input(node, kLstmHidden), nullptr, &p.recurrent);
  }
  ATOLL_ASSIGN_OR_RETURN(p.cell_integer_bits, CellIntegerBits(cell.scale()));
  if (options.cell_clip > 0) {
    p.cell_clip = static_cast<int32_t>(std::min(options.cell_clip / cell.scale(), 32767.0f));
  }
  constexpr double kUnit = 1.0 / 32768;
  p.hidden_multiplier = QuantizeMultiplier(
      static_cast<double>(static_cast<float>(kUnit / static_cast<double>(hidden.scale()) * kUnit)));
  p.hidden_zero_point = hidden.zero_point();
  return p;
}

Result<SvdfParams> MakeSvdfParams(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckQuantized(graph, node, 0, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckStepWeights(graph, node, 1, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckStepWeights(graph, node, 2, DataType::kInt16));
  ATOLL_RETURN_IF_ERROR(CheckState(graph, node, 4, DataType::kInt16));
  ATOLL_RETURN_IF_ERROR(CheckOutput(graph, node));
  const Tensor& x = *graph.Input(node, 0);
  const Tensor& features = *graph.Input(node, 1);
  const Tensor& time = *graph.Input(node, 2);
  const Tensor* bias = graph.Input(node, 3);
  const Tensor& state = *graph.Input(node, 4);
  const Tensor& output = graph.Output(node);
  SvdfParams p;
  if (bias != nullptr) {
    ATOLL_RETURN_IF_ERROR(CheckStepBias(graph, node, 3));
    p.bias = bias->data.data();
  }
  p.batch = x.shape[0];
  p.inputs = x.shape[1];
  p.units = output.shape[1];
  p.rank = std::get<SvdfOptions>(node.options).rank;
  p.memory = time.shape[1];
  p.features = AsInt8(features.data.data());
  p.time = time.data.data();
  p.input_zero_point = x.zero_point();
  p.feature_multiplier =
      QuantizeMultiplier(static_cast<double>(x.scale() * features.scale() / state.scale()));
  p.output_multiplier =
      QuantizeMultiplier(static_cast<double>(state.scale() * time.scale() / output.scale()));
  p.output_zero_point = output.zero_point();
  return p;
}

Executor PrepareLstm(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(LstmParams params, MakeLstmParams(graph, node));
  const size_t scratch = LstmScratchBytes(params);
  const auto lstm = [params = std::move(params)](const NodeIo& io) {
    Lstm(params, AsInt8(io.inputs[0]), AsInt8(io.state[kLstmHidden]), io.state[kLstmCell],
         AsInt8(io.outputs[0]), io.scratch);
  };
  return Run(lstm, scratch);
}

// The fused activation, RELU in published models, changes nothing: TensorFlow Lite applies none to
// the integer form.
Executor PrepareSvdf(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const SvdfParams params, MakeSvdfParams(graph, node));
  return Run([params](const NodeIo& io) {
    Svdf(params, AsInt8(io.inputs[0]), reinterpret_cast<int16_t*>(io.state[4]),
         AsInt8(io.outputs[0]));
  });
}

}  // namespace atollrt
