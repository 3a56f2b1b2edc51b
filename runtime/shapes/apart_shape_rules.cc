// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of the operators that are linked apart.
#include <algorithm>
#include <utility>

#include "runtime/shapes/shape_rules.h"

namespace atollrt {

ShapeRule ApartShapeRule(OpType type) {
  switch (type) {
#define ATOLL_OP_APART(name, number, version, types, Infer, Prepare) \
  case OpType::k##name:                                              \
    return Infer;
#include "runtime/graph/operators.inc"
    default:
      return nullptr;
  }
}

namespace {

// The shape that a constant input has as its values.
Result<Shape> ShapeInput(const Graph& graph, const Node& node, size_t position) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ConstantInput(graph, node, position));
  Shape output;
  for (const int64_t size : sizes) {
    if (size < 0 || size > INT32_MAX) {
      return CorruptModel("the output shape has a size of %lld", static_cast<long long>(size));
    }
    output.push_back(static_cast<int32_t>(size));
  }
  return output;
}

}  // namespace

Result<Shapes> InferAddN(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {node.inputs.size(), node.inputs.size()}));
  const Shape& shape = graph.Input(node, 0)->shape;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (graph.Input(node, i)->shape == shape) continue;
    return CorruptModel("input %zu has shape %s, must have that of input 0, %s", i,
                        ShapeString(graph.Input(node, i)->shape).c_str(),
                        ShapeString(shape).c_str());
  }
  return One(shape);
}

Result<Shapes> InferFill(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  if (graph.Input(node, 1)->element_count() != 1) {
    return CorruptModel("the value has shape %s, must be one element",
                        ShapeString(graph.Input(node, 1)->shape).c_str());
  }
  ATOLL_ASSIGN_OR_RETURN(Shape output, ShapeInput(graph, node, 0));
  return One(std::move(output));
}

Result<Shapes> InferReverse(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, ConstantInput(graph, node, 1));
  const Shape& input = graph.Input(node, 0)->shape;
  for (const int64_t axis : axes) ATOLL_RETURN_IF_ERROR(CheckAxis(axis, input).status());
  return One(input);
}

Result<Shapes> InferTopK(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2, 2}));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> k, ConstantInput(graph, node, 1));
  Shape output = graph.Input(node, 0)->shape;
  if (output.empty() || k.size() != 1 || k[0] < 0 || k[0] > output.back()) {
    return CorruptModel("the greatest %lld of rows of an input of shape %s",
                        static_cast<long long>(k.empty() ? -1 : k[0]), ShapeString(output).c_str());
  }
  output.back() = static_cast<int32_t>(k[0]);
  return Shapes{output, output};
}

Result<Shapes> InferBroadcastTo(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  ATOLL_ASSIGN_OR_RETURN(Shape output, ShapeInput(graph, node, 1));
  const Shape& input = graph.Input(node, 0)->shape;
  Shape both;
  if (!BroadcastShapes(input, output, &both) || both != output) {
    return CorruptModel("shape %s does not broadcast to %s", ShapeString(input).c_str(),
                        ShapeString(output).c_str());
  }
  return One(std::move(output));
}

// A condition of one dimension may select rows (SELECT); the others broadcast (SELECT_V2).
Result<Shapes> InferSelect(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 3}));
  const Shape& condition = graph.Input(node, 0)->shape;
  const Shape& a = graph.Input(node, 1)->shape;
  const Shape& b = graph.Input(node, 2)->shape;
  if (node.type == OpType::kSELECT) {
    const bool selects_rows = condition.size() == 1 && !a.empty() && condition[0] == a[0];
    const bool is_one = ElementCount(condition) == 1;
    if (a == b && (condition == a || selects_rows || is_one)) return One(a);
    return CorruptModel("a condition of shape %s does not select from %s and %s",
                        ShapeString(condition).c_str(), ShapeString(a).c_str(),
                        ShapeString(b).c_str());
  }
  Shape values, output;
  if (!BroadcastShapes(a, b, &values) || !BroadcastShapes(condition, values, &output)) {
    return CorruptModel("shapes %s, %s and %s do not broadcast", ShapeString(condition).c_str(),
                        ShapeString(a).c_str(), ShapeString(b).c_str());
  }
  return One(std::move(output));
}

}  // namespace atollrt
