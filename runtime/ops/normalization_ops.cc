// SPDX-License-Identifier: Apache-2.0
//
// Operators that relate every element to its row: LOG_SOFTMAX and L2_NORMALIZATION.
#include <algorithm>
#include <cmath>

#include "runtime/base/bytes.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// Rows of float32, possibly unaligned.
struct FloatRow {
  const uint8_t* input;
  uint8_t* output;
  int32_t depth;

  float at(int32_t i) const { return LoadLittleEndian<float>(input + 4 * int64_t{i}); }
  void set(int32_t i, float value) const { StoreLittleEndian(output + 4 * int64_t{i}, value); }
};

// function(FloatRow) for every row along the last dimension.
template <typename Function>
Executor RunFloatRows(const Graph& graph, const Node& node, Function function) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  if (input.shape.empty() || input.shape.back() < 1) {
    return CorruptModel("input has shape %s", ShapeString(input.shape).c_str());
  }
  const int32_t depth = input.shape.back();
  return Run([function, depth, count = input.element_count()](const NodeIo& io) {
    for (int64_t i = 0; i < count; i += depth) {
      function(FloatRow{io.inputs[0] + 4 * i, io.outputs[0] + 4 * i, depth});
    }
  });
}

void LogSoftmaxRow(const FloatRow& row) {
  float max = row.at(0);
  for (int32_t i = 1; i < row.depth; ++i) max = std::max(max, row.at(i));
  float sum = 0;
  for (int32_t i = 0; i < row.depth; ++i) sum += std::exp(row.at(i) - max);
  const float log_sum = std::log(sum);
  for (int32_t i = 0; i < row.depth; ++i) row.set(i, row.at(i) - max - log_sum);
}

void L2NormalizationRow(const FloatRow& row) {
  float sum = 0;
  for (int32_t i = 0; i < row.depth; ++i) sum += row.at(i) * row.at(i);
  constexpr float kEpsilon = 1e-6f;
  const float norm = std::max(std::sqrt(sum), kEpsilon);
  for (int32_t i = 0; i < row.depth; ++i) row.set(i, row.at(i) / norm);
}

}  // namespace

Executor PrepareLogSoftmax(const Graph& graph, const Node& node, CpuFeatures) {
  if (graph.Input(node, 0)->type == DataType::kFloat32) {
    return RunFloatRows(graph, node, LogSoftmaxRow);
  }
  ATOLL_ASSIGN_OR_RETURN(const LogSoftmaxParams params, MakeLogSoftmaxParams(graph, node));
  return Run([params](const NodeIo& io) { LogSoftmax(params, io.inputs[0], io.outputs[0]); });
}

Executor PrepareL2Normalization(const Graph& graph, const Node& node, CpuFeatures) {
  if (graph.Input(node, 0)->type == DataType::kFloat32) {
    if (std::get<ElementwiseOptions>(node.options).activation != Activation::kNone) {
      return Unsupported("a fused activation");
    }
    return RunFloatRows(graph, node, L2NormalizationRow);
  }
  ATOLL_ASSIGN_OR_RETURN(const L2NormalizationParams params,
                         MakeL2NormalizationParams(graph, node));
  return Run([params](const NodeIo& io) { L2Normalization(params, io.inputs[0], io.outputs[0]); });
}

}  // namespace atollrt
