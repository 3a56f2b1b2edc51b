// SPDX-License-Identifier: Apache-2.0
//
// Layers with a memory: UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF.
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/kernels/lstm.h"
#include "runtime/kernels/svdf.h"
#include "runtime/ops/executors.h"

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
Status CheckWeights(const Graph& graph, const Node& node, size_t position, DataType type) {
  ATOLL_RETURN_IF_ERROR(CheckQuantized(graph, node, position, type));
  const Tensor& tensor = *graph.Input(node, position);
  if (!tensor.is_constant()) return Unsupported("input %zu is no constant", position);
  if (tensor.zero_point() != 0) {
    return CorruptModel("weights in input %zu have zero point %d, must be 0", position,
                        tensor.zero_point());
  }
  return Status();
}

Status CheckBias(const Graph& graph, const Node& node, size_t position) {
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

// bias[u] - zero_point * sum of row u, modulo 2^32; `bias` may be nullptr.
std::vector<int32_t> FoldZeroPoint(const Tensor& weights, int32_t zero_point, const Tensor* bias) {
  const int32_t rows = weights.shape[0];
  const int32_t columns = weights.shape[1];
  std::vector<int32_t> folded(static_cast<size_t>(rows));
  const uint8_t* weight = weights.data.data();
  for (int32_t u = 0; u < rows; ++u) {
    uint32_t sum = 0;
    for (int32_t i = 0; i < columns; ++i) {
      sum += static_cast<uint32_t>(static_cast<int8_t>(*weight++));
    }
    const uint32_t start =
        bias == nullptr ? 0 : LoadLittleEndian<uint32_t>(bias->data.data() + 4 * int64_t{u});
    folded[u] = static_cast<int32_t>(start - static_cast<uint32_t>(zero_point) * sum);
  }
  return folded;
}

const int8_t* AsInt8(const uint8_t* bytes) { return reinterpret_cast<const int8_t*>(bytes); }

// Gate 0 to 3: input, forget, cell, output.
Result<LstmGate> MakeGate(const Graph& graph, const Node& node, size_t gate) {
  const size_t input_position = 1 + gate;
  const size_t recurrent_position = 5 + gate;
  const size_t bias_position = 12 + gate;
  ATOLL_RETURN_IF_ERROR(CheckWeights(graph, node, input_position, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckWeights(graph, node, recurrent_position, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckBias(graph, node, bias_position));
  const Tensor& x = *graph.Input(node, 0);
  const Tensor& hidden = *graph.Input(node, 18);
  const Tensor& input = *graph.Input(node, input_position);
  const Tensor& recurrent = *graph.Input(node, recurrent_position);
  constexpr float kPreactivationScale = 1.0f / 4096;
  return LstmGate{
      .input_weights = AsInt8(input.data.data()),
      .recurrent_weights = AsInt8(recurrent.data.data()),
      .input_bias = FoldZeroPoint(input, x.zero_point(), graph.Input(node, bias_position)),
      .recurrent_bias = FoldZeroPoint(recurrent, hidden.zero_point(), nullptr),
      .input_multiplier =
          QuantizeMultiplier(static_cast<double>(input.scale() * x.scale() / kPreactivationScale)),
      .recurrent_multiplier = QuantizeMultiplier(
          static_cast<double>(recurrent.scale() * hidden.scale() / kPreactivationScale))};
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

Result<LstmParams> MakeLstmParams(const Graph& graph, const Node& node) {
  const LstmOptions& options = std::get<LstmOptions>(node.options);
  if (options.activation != Activation::kTanh) {
    return Unsupported("fused activation %d, must be TANH", static_cast<int>(options.activation));
  }
  ATOLL_RETURN_IF_ERROR(CheckQuantized(graph, node, 0, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckState(graph, node, 18, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckState(graph, node, 19, DataType::kInt16));
  ATOLL_RETURN_IF_ERROR(CheckOutput(graph, node));
  if (node.intermediates.size() != 5 || node.intermediates[4] < 0 ||
      !(graph.tensors[node.intermediates[4]].scale() > 0)) {
    return CorruptModel("it has no fifth intermediate with the scale of the hidden value");
  }
  const Tensor& hidden = graph.tensors[node.intermediates[4]];
  const Tensor& cell = *graph.Input(node, 19);
  const Shape& x = graph.Input(node, 0)->shape;
  LstmParams p;
  p.layout = options.time_major ? LstmLayout::kTimeMajor : LstmLayout::kBatchMajor;
  p.batch = x[options.time_major ? 1 : 0];
  p.steps = x[options.time_major ? 0 : 1];
  p.inputs = x[2];
  p.units = graph.Output(node).shape[2];
  ATOLL_ASSIGN_OR_RETURN(p.input, MakeGate(graph, node, 0));
  ATOLL_ASSIGN_OR_RETURN(p.forget, MakeGate(graph, node, 1));
  ATOLL_ASSIGN_OR_RETURN(p.cell, MakeGate(graph, node, 2));
  ATOLL_ASSIGN_OR_RETURN(p.output, MakeGate(graph, node, 3));
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

}  // namespace

Executor PrepareLstm(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(LstmParams params, MakeLstmParams(graph, node));
  const size_t scratch = LstmScratchBytes(params);
  const auto lstm = [params = std::move(params)](const NodeIo& io) {
    Lstm(params, AsInt8(io.inputs[0]), reinterpret_cast<int8_t*>(io.state[18]),
         reinterpret_cast<int16_t*>(io.state[19]), reinterpret_cast<int8_t*>(io.outputs[0]),
         io.scratch);
  };
  return Run(lstm, scratch);
}

// The fused activation, RELU in published models, changes nothing: TensorFlow Lite applies none to
// the integer form.
Executor PrepareSvdf(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_RETURN_IF_ERROR(CheckQuantized(graph, node, 0, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckWeights(graph, node, 1, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckWeights(graph, node, 2, DataType::kInt16));
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
    ATOLL_RETURN_IF_ERROR(CheckBias(graph, node, 3));
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
  return Run([p](const NodeIo& io) {
    Svdf(p, AsInt8(io.inputs[0]), reinterpret_cast<int16_t*>(io.state[4]),
         reinterpret_cast<int8_t*>(io.outputs[0]));
  });
}

}  // namespace atollrt
