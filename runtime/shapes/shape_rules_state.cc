// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of operators that remember something from one invocation to the next.
#include "runtime/shapes/shape_rules.h"

namespace atollrt {
namespace {

Status CheckShape(const Graph& graph, const Node& node, size_t position, const Shape& shape) {
  const Tensor* tensor = graph.Input(node, position);
  if (tensor == nullptr) return CorruptModel("input %zu is absent", position);
  if (tensor->shape != shape) {
    return CorruptModel("input %zu has shape %s, must be %s", position,
                        ShapeString(tensor->shape).c_str(), ShapeString(shape).c_str());
  }
  return Status();
}

}  // namespace

Status InferLstm(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 24}));
  // Forms that change shapes or arithmetic, by the inputs that make them.
  constexpr struct {
    size_t first, last;
    const char* form;
  } kForms[] = {
      {9, 11, "peephole connections"}, {16, 17, "a projection"}, {20, 23, "layer normalization"}};
  for (const auto& [first, last, form] : kForms) {
    for (size_t i = first; i <= last; ++i) {
      if (graph.Input(node, i) != nullptr) return Unsupported("%s (input %zu)", form, i);
    }
  }
  if (graph.Input(node, 1) == nullptr || graph.Input(node, 5) == nullptr ||
      graph.Input(node, 12) == nullptr) {
    return Unsupported("coupled input and forget gates (CIFG): no input gate");
  }
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 3));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 2));
  const Shape& x = graph.Input(node, 0)->shape;
  const int32_t units = graph.Input(node, 1)->shape[0];
  const bool time_major = std::get<LstmOptions>(node.options).time_major;
  const int32_t batch = x[time_major ? 1 : 0];
  for (size_t gate = 0; gate < 4; ++gate) {
    ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 1 + gate, {units, x[2]}));
    ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 5 + gate, {units, units}));
    ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 12 + gate, {units}));
  }
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 18, {batch, units}));
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 19, {batch, units}));
  outputs->push_back({x[0], x[1], units});
  return Status();
}

Status InferSvdf(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 5}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 2));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 2));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[2], 2));
  const Shape& x = graph.Input(node, 0)->shape;
  const int32_t filters = graph.Input(node, 1)->shape[0];
  const int32_t memory = graph.Input(node, 2)->shape[1];
  const int32_t rank = std::get<SvdfOptions>(node.options).rank;
  if (rank < 1 || filters % rank != 0) {
    return CorruptModel("rank %d does not divide %d filters", rank, filters);
  }
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 1, {filters, x[1]}));
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 2, {filters, memory}));
  if (graph.Input(node, 3) != nullptr) {
    ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 3, {filters / rank}));
  }
  int32_t state = 0;
  if (__builtin_mul_overflow(filters, memory, &state)) {
    return CorruptModel("%d filters with a memory of %d", filters, memory);
  }
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 4, {x[0], state}));
  outputs->push_back({x[0], filters / rank});
  return Status();
}

Status InferCallOnce(const Graph&, const Node& node, std::vector<Shape>*) {
  return CheckCounts(node, {0, 0, 0});
}

// A handle is one number.
Status InferVarHandle(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {0, 0, 1}));
  if (graph.Output(node).type != DataType::kResource) {
    return CorruptModel("the output has type %s, must be resource",
                        DataTypeName(graph.Output(node).type));
  }
  outputs->push_back({});
  return Status();
}

// The stored shape counts, as for an input of the graph; that it is the variable's is checked when
// all graphs are there.
Status InferReadVariable(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  outputs->push_back(graph.Output(node).shape);
  return Status();
}

Status InferAssignVariable(const Graph&, const Node& node, std::vector<Shape>*) {
  return CheckCounts(node, {2, 2, 0});
}

}  // namespace atollrt
