// SPDX-License-Identifier: Apache-2.0
//
// Reductions and the softmax family.
#include <algorithm>
#include <vector>

#include "runtime/kernels/softmax_float.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// Copies `input` with the reduced axes moved in front of the others.
void GatherReduced(const Shape& shape, const std::vector<int32_t>& order, size_t depth,
                   const std::vector<int64_t>& strides, const uint8_t* input, uint8_t** out) {
  if (depth == order.size()) {
    *(*out)++ = *input;
    return;
  }
  for (int32_t i = 0; i < shape[order[depth]]; ++i) {
    GatherReduced(shape, order, depth + 1, strides, input + i * strides[order[depth]], out);
  }
}

Executor PrepareFloatSoftmax(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  if (input.shape.empty() || input.shape.back() < 1) {
    return CorruptModel("input has shape %s", ShapeString(input.shape).c_str());
  }
  const int32_t depth = input.shape.back();
  const int64_t rows = input.element_count() / depth;
  const float beta = std::get<SoftmaxOptions>(node.options).beta;
  return Run(
      [=](const NodeIo& io) { SoftmaxFloat(rows, depth, beta, io.inputs[0], io.outputs[0]); });
}

}  // namespace

Executor PrepareSoftmax(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  if (input.type == DataType::kFloat32) return PrepareFloatSoftmax(graph, node);
  ATOLL_ASSIGN_OR_RETURN(const SoftmaxParams params, MakeSoftmaxParams(graph, node));
  if (graph.Output(node).type == DataType::kInt16) {
    return Run([params](const NodeIo& io) {
      SoftmaxToInt16(params, io.inputs[0], reinterpret_cast<int16_t*>(io.outputs[0]));
    });
  }
  return Run([params](const NodeIo& io) { Softmax(params, io.inputs[0], io.outputs[0]); });
}

Executor PrepareMean(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(MeanPlan plan, MakeMeanPlan(graph, node));
  const MeanParams params = plan.params;
  if (plan.contiguous) {
    return Run([params](const NodeIo& io) { Mean(params, io.inputs[0], io.outputs[0]); });
  }
  const Shape shape = graph.Input(node, 0)->shape;
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  std::vector<int32_t> order = plan.reduced;
  for (int32_t i = 0; i < static_cast<int32_t>(shape.size()); ++i) {
    if (!std::binary_search(plan.reduced.begin(), plan.reduced.end(), i)) order.push_back(i);
  }
  const auto gather_and_mean = [params, shape, strides, order](const NodeIo& io) {
    uint8_t* out = io.scratch;
    GatherReduced(shape, order, 0, strides, io.inputs[0], &out);
    Mean(params, io.scratch, io.outputs[0]);
  };
  return Run(gather_and_mean, static_cast<size_t>(graph.Input(node, 0)->element_count()));
}

}  // namespace atollrt
