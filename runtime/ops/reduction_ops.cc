// SPDX-License-Identifier: Apache-2.0
//
// Reductions and the softmax family.
#include <algorithm>
#include <vector>

#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"

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

}  // namespace

Executor PrepareSoftmax(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const SoftmaxParams params, MakeSoftmaxParams(graph, node));
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
