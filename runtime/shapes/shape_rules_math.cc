// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of operators that compute: element-wise ones, reductions, matrix products.
#include <utility>

#include "runtime/shapes/shape_rules.h"

namespace atollrt {

Result<Shapes> InferFullyConnected(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 3}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 2));
  const Tensor& input = *graph.Input(node, 0);
  const Shape& weights = graph.Input(node, 1)->shape;
  const int32_t units = weights[0];
  const int32_t depth = weights[1];
  const int64_t elements = input.element_count();
  if (elements < 1 || elements % depth != 0) {
    return CorruptModel("input of shape %s is not a whole number of rows of %d",
                        ShapeString(input.shape).c_str(), depth);
  }
  ATOLL_RETURN_IF_ERROR(CheckBiasSize(graph.Input(node, 2), units, "units"));
  if (std::get<FullyConnectedOptions>(node.options).keep_num_dims) {
    if (input.shape.empty() || input.shape.back() != depth) {
      return CorruptModel("keep_num_dims with an input of shape %s and a depth of %d",
                          ShapeString(input.shape).c_str(), depth);
    }
    Shape output = input.shape;
    output.back() = units;
    return One(std::move(output));
  }
  return One({static_cast<int32_t>(elements / depth), units});
}

Result<Shapes> InferBatchMatMul(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  const Shape& lhs = graph.Input(node, 0)->shape;
  const Shape& rhs = graph.Input(node, 1)->shape;
  constexpr size_t kMaxOperandRank = 5;
  for (const Shape& shape : {lhs, rhs}) {
    if (shape.size() < 2 || shape.size() > kMaxOperandRank || ElementCount(shape) < 1) {
      return CorruptModel("operand has shape %s, must have 2 to %zu dimensions, none of them 0",
                          ShapeString(shape).c_str(), kMaxOperandRank);
    }
  }
  const BatchMatMulOptions& options = std::get<BatchMatMulOptions>(node.options);
  const size_t m = lhs.size() - (options.transpose_lhs ? 1 : 2);
  const size_t k = lhs.size() - (options.transpose_lhs ? 2 : 1);
  const size_t rhs_k = rhs.size() - (options.transpose_rhs ? 1 : 2);
  const size_t n = rhs.size() - (options.transpose_rhs ? 2 : 1);
  Shape output;
  if (lhs[k] != rhs[rhs_k] || !BroadcastShapes(Shape(lhs.begin(), lhs.end() - 2),
                                               Shape(rhs.begin(), rhs.end() - 2), &output)) {
    return CorruptModel("matrices of shape %s and %s cannot be multiplied",
                        ShapeString(lhs).c_str(), ShapeString(rhs).c_str());
  }
  output.push_back(lhs[m]);
  output.push_back(rhs[n]);
  return One(std::move(output));
}

Result<Shapes> InferReduction(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, ConstantInput(graph, node, 1));
  const Shape& input = graph.Input(node, 0)->shape;
  std::vector<bool> reduce(input.size());
  for (const int64_t value : axes) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckAxis(value, input));
    reduce[axis] = true;
  }
  Shape output;
  for (size_t i = 0; i < input.size(); ++i) {
    if (!reduce[i]) {
      output.push_back(input[i]);
    } else if (std::get<ReducerOptions>(node.options).keep_dims) {
      output.push_back(1);
    }
  }
  return One(std::move(output));
}

Result<Shapes> InferBroadcast(const Graph& graph, const Node& node) {
  Shape output;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  const Shape& a = graph.Input(node, 0)->shape;
  const Shape& b = graph.Input(node, 1)->shape;
  if (!BroadcastShapes(a, b, &output)) {
    return CorruptModel("shapes %s and %s do not broadcast", ShapeString(a).c_str(),
                        ShapeString(b).c_str());
  }
  return One(std::move(output));
}

Result<Shapes> InferPrelu(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(Shapes outputs, InferBroadcast(graph, node));
  const Shape& input = graph.Input(node, 0)->shape;
  if (outputs.back() == input) return outputs;
  return CorruptModel("slopes of shape %s enlarge an input of shape %s",
                      ShapeString(graph.Input(node, 1)->shape).c_str(), ShapeString(input).c_str());
}

Result<Shapes> InferUnary(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  return One(graph.Input(node, 0)->shape);
}

}  // namespace atollrt
