// SPDX-License-Identifier: Apache-2.0
#include "runtime/shapes/shape_inference.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "runtime/graph/graph_checks.h"
#include "runtime/shapes/shape_rules.h"

namespace atollrt {

WindowResult ResolveWindow(const WindowSize& size, Padding padding) {
  const int64_t extent = (int64_t{size.filter} - 1) * size.dilation + 1;
  WindowResult result;
  if (padding == Padding::kValid) {
    const int64_t cells = int64_t{size.input} + size.stride - extent;
    result.output = static_cast<int32_t>(std::max<int64_t>(0, cells / size.stride));
    return result;
  }
  result.output = static_cast<int32_t>((int64_t{size.input} + size.stride - 1) / size.stride);
  const int64_t needed = (int64_t{result.output} - 1) * size.stride + extent;
  result.pad_before = static_cast<int32_t>(std::max<int64_t>(0, needed - size.input) / 2);
  return result;
}

int32_t NormalizeAxis(int64_t axis, size_t rank) {
  const int64_t signed_rank = static_cast<int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) return -1;
  return static_cast<int32_t>(axis < 0 ? axis + signed_rank : axis);
}

bool BroadcastShapes(const Shape& a, const Shape& b, Shape* result) {
  const size_t rank = std::max(a.size(), b.size());
  result->assign(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const int32_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int32_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) return false;
    (*result)[rank - 1 - i] = da == 1 ? db : da;
  }
  return true;
}

Result<Shapes> One(Shape shape) {
  Shapes shapes;
  shapes.push_back(std::move(shape));
  return shapes;
}

Status CheckBiasSize(const Tensor* bias, int32_t channels, const char* name) {
  if (bias == nullptr || bias->element_count() == channels) return Status();
  return CorruptModel("bias has %lld elements for %d %s",
                      static_cast<long long>(bias->element_count()), channels, name);
}

Status CheckCounts(const Node& node, const NodeCounts& counts) {
  if (node.inputs.size() < counts.min_inputs || node.inputs.size() > counts.max_inputs) {
    return CorruptModel("has %zu inputs, must have %zu to %zu", node.inputs.size(),
                        counts.min_inputs, counts.max_inputs);
  }
  for (size_t i = 0; i < counts.min_inputs; ++i) {
    if (node.inputs[i] < 0) return CorruptModel("input %zu is absent", i);
  }
  if (node.outputs.size() != counts.outputs) {
    return CorruptModel("has %zu outputs, must have %zu", node.outputs.size(), counts.outputs);
  }
  return Status();
}

Status CheckRank(const Graph& graph, int32_t tensor, size_t rank) {
  const Shape& shape = graph.tensors[tensor].shape;
  if (shape.size() != rank) {
    return CorruptModel("%s has shape %s, must have %zu dimensions",
                        Describe(graph, tensor).c_str(), ShapeString(shape).c_str(), rank);
  }
  for (const int32_t dim : shape) {
    if (dim < 1) {
      return CorruptModel("%s has shape %s; sizes must be at least 1",
                          Describe(graph, tensor).c_str(), ShapeString(shape).c_str());
    }
  }
  return Status();
}

Status CheckWindowParameter(const char* name, int32_t value) {
  // Beyond this index arithmetic in int32 gets unsafe somewhere; no real layer comes near.
  constexpr int32_t kMax = 65535;
  if (value < 1 || value > kMax) {
    return CorruptModel("%s is %d, must be 1 to %d", name, value, kMax);
  }
  return Status();
}

Result<std::vector<int64_t>> ConstantInput(const Graph& graph, const Node& node, size_t position) {
  const int32_t index = node.inputs[position];
  const Tensor& tensor = graph.tensors[index];
  if (tensor.type != DataType::kInt32 && tensor.type != DataType::kInt64) {
    return CorruptModel("%s has type %s, must be int32 or int64", Describe(graph, index).c_str(),
                        DataTypeName(tensor.type));
  }
  if (!tensor.is_constant() && tensor.element_count() > 0) {
    return Unsupported(
        "%s is computed at run time, which makes shapes dynamic; it must be a "
        "constant",
        Describe(graph, index).c_str());
  }
  if (tensor.element_count() == 0) return std::vector<int64_t>();
  // Two for each dimension, or one for each output. Many nodes may share the tensor.
  const size_t most = std::max(2 * kMaxRank, node.outputs.size());
  if (static_cast<size_t>(tensor.element_count()) > most) {
    return CorruptModel("%s has %lld values, at most %zu make sense",
                        Describe(graph, index).c_str(),
                        static_cast<long long>(tensor.element_count()), most);
  }
  return ConstantIntegers(tensor);
}

Result<int32_t> CheckAxis(int64_t axis, const Shape& shape) {
  const int32_t normalized = NormalizeAxis(axis, shape.size());
  if (normalized < 0) {
    return CorruptModel("axis %lld does not exist in shape %s", static_cast<long long>(axis),
                        ShapeString(shape).c_str());
  }
  return normalized;
}

namespace {

ShapeRule RuleFor(const Node& node) {
  switch (node.type) {
#define ATOLL_OP(name, number, version, types, Infer, Prepare) \
  case OpType::k##name:                                        \
    return Infer;
#include "runtime/graph/operators.inc"
    default:
      break;
  }
#define ATOLL_CUSTOM_OP(name, types, Infer, Prepare, Options) \
  if (node.type == OpType::kCUSTOM && node.custom_name == (name)) return Infer;
#include "runtime/graph/operators.inc"
  return ApartShapeRule(node.type);
}

// Whoever looks at a node relies on its having outputs and inputs.
Status CheckEnds(const Node& node) {
  const auto is_one_of = [&node](std::initializer_list<OpType> types) {
    return std::find(types.begin(), types.end(), node.type) != types.end();
  };
  if (node.outputs.empty() && !is_one_of({OpType::kCALL_ONCE, OpType::kASSIGN_VARIABLE})) {
    return CorruptModel("has no outputs");
  }
  if (node.inputs.empty() && !is_one_of({OpType::kCALL_ONCE, OpType::kVAR_HANDLE})) {
    return CorruptModel("has no inputs");
  }
  return Status();
}

// `unknown`: the node without a rule on whose stored shapes this one depends, or nullptr.
Status InferOutputs(Graph* graph, const Node& node, ShapeRule rule, const Node* unknown) {
  Status status = CheckEnds(node);
  Shapes outputs;
  if (status.ok()) {
    Result<Shapes> inferred = rule(*graph, node);
    status = inferred.status();
    if (inferred.ok()) outputs = *std::move(inferred);
  }
  if (!status.ok() && unknown != nullptr) {
    return Unsupported(
        "%s: Atoll has no %soperator of this name, and the shapes stored for it do not fit %s",
        Describe(*graph, *unknown).c_str(), unknown->type == OpType::kCUSTOM ? "custom " : "",
        Describe(*graph, node).c_str());
  }
  if (!status.ok()) return std::move(status).WithContext(Describe(*graph, node));
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph->tensors[node.outputs[i]].shape = std::move(outputs[i]);
  }
  return Status();
}

Status CheckOutputSizes(const Graph& graph, const Node& node) {
  for (const int32_t index : node.outputs) {
    const Tensor& tensor = graph.tensors[index];
    if (HasAllowedSize(tensor)) continue;
    return Unsupported(
        "%s writes %s of shape %s; sizes must be fixed, below %lld bytes and in at most %zu "
        "dimensions",
        Describe(graph, node).c_str(), Describe(graph, index).c_str(),
        ShapeString(tensor.shape).c_str(), static_cast<long long>(kMaxTensorBytes), kMaxRank);
  }
  return Status();
}

// Those that `gone` marks, in order.
void RemoveNodes(const std::vector<bool>& gone, std::vector<Node>* nodes) {
  size_t kept = 0;
  for (size_t i = 0; i < nodes->size(); ++i) {
    if (gone[i]) continue;
    if (kept != i) (*nodes)[kept] = std::move((*nodes)[i]);
    ++kept;
  }
  nodes->resize(kept);
}

}  // namespace

Status InferShapes(Graph* graph, const ConstantFolding* folding) {
  // Per tensor: the node without a rule on whose stored shapes its own depends. Files may store
  // no shapes at all, so what follows such a node may look wrong without being wrong.
  std::vector<const Node*> unknown(graph->tensors.size(), nullptr);
  // Messages name nodes by their place in the file, so none is removed before all are seen.
  std::vector<bool> folded(graph->nodes.size());
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    const Node& node = graph->nodes[i];
    const Node* origin = nullptr;
    for (const int32_t index : node.inputs) {
      if (index >= 0 && unknown[index] != nullptr) origin = unknown[index];
    }
    if (const ShapeRule rule = RuleFor(node); rule != nullptr) {
      ATOLL_RETURN_IF_ERROR(InferOutputs(graph, node, rule, origin));
    } else {
      origin = &node;
    }
    for (const int32_t index : node.outputs) unknown[index] = origin;
    // Node by node, so that the products of later nodes cannot overflow.
    ATOLL_RETURN_IF_ERROR(CheckOutputSizes(*graph, node));
    folded[i] = folding != nullptr && origin == nullptr && folding->Fold(graph, node);
  }
  RemoveNodes(folded, &graph->nodes);
  return Status();
}

}  // namespace atollrt
