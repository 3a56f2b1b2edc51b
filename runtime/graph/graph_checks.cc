// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/graph_checks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

std::vector<bool> OutputsOfNodes(const Graph& graph) {
  std::vector<bool> is_output(graph.tensors.size());
  for (const Node& node : graph.nodes) {
    for (const int32_t output : node.outputs) is_output[output] = true;
  }
  return is_output;
}

// What a zero point may be: a value of the type, if that is an integer of at most 32 bits.
std::pair<int64_t, int64_t> ZeroPointRange(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return {INT8_MIN, INT8_MAX};
    case DataType::kUInt8:
      return {0, UINT8_MAX};
    case DataType::kInt16:
      return {INT16_MIN, INT16_MAX};
    default:
      return {INT32_MIN, INT32_MAX};
  }
}

Status CheckQuantization(const Graph& graph, int32_t index) {
  const Tensor& tensor = graph.tensors[index];
  const Quantization& q = tensor.quantization;
  for (size_t i = 0; i < q.scales.size(); ++i) {
    // Constants may have scale 0 (a channel of zeros); nothing divides by it.
    if (!std::isfinite(q.scales[i]) || q.scales[i] < 0 ||
        (q.scales[i] == 0 && !tensor.is_constant())) {
      return CorruptModel("%s: scale[%zu] is %g", DescribeUse(graph, index).c_str(), i,
                          static_cast<double>(q.scales[i]));
    }
    const auto [lo, hi] = ZeroPointRange(tensor.type);
    if (q.zero_points[i] < lo || q.zero_points[i] > hi) {
      return CorruptModel("%s: zero_point[%zu] is %lld, outside the range of %s",
                          DescribeUse(graph, index).c_str(), i,
                          static_cast<long long>(q.zero_points[i]), DataTypeName(tensor.type));
    }
  }
  // Biases take their scale from input and weights, so what is stored with them may be anything
  // (published models have quantized_dimension 3 on vectors).
  if ((tensor.type == DataType::kInt32 || tensor.type == DataType::kInt64) &&
      tensor.is_constant()) {
    return Status();
  }
  if (q.scales.size() > 1) {
    const bool exists = q.dimension >= 0 && static_cast<size_t>(q.dimension) < tensor.shape.size();
    if (!exists) {
      return CorruptModel("%s: quantized dimension %d, but the shape is %s",
                          DescribeUse(graph, index).c_str(), q.dimension,
                          ShapeString(tensor.shape).c_str());
    }
    if (tensor.shape[q.dimension] != static_cast<int64_t>(q.scales.size())) {
      return CorruptModel("%s: %zu scales for dimension %d of shape %s",
                          DescribeUse(graph, index).c_str(), q.scales.size(), q.dimension,
                          ShapeString(tensor.shape).c_str());
    }
  }
  return Status();
}

}  // namespace

std::string DescribeUse(const Graph& graph, int32_t tensor) {
  const auto has = [tensor](const std::vector<int32_t>& tensors) {
    return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
  };
  for (const Node& node : graph.nodes) {
    if (has(node.inputs) || has(node.outputs) || has(node.intermediates)) {
      return Describe(graph, tensor) + " of " + Describe(graph, node);
    }
  }
  return Describe(graph, tensor);
}

bool HasAllowedSize(const Tensor& tensor) {
  if (tensor.shape.size() > kMaxRank) return false;
  // Strides are products of some of the sizes, so a size of 0 makes the others no less large.
  uint64_t bytes = std::max<size_t>(1, DataTypeSize(tensor.type));
  for (const int32_t dim : tensor.shape) {
    if (dim < 0 || !CheckedMultiply(bytes, static_cast<uint64_t>(std::max(1, dim)), &bytes) ||
        bytes > static_cast<uint64_t>(kMaxTensorBytes)) {
      return false;
    }
  }
  return true;
}

// Every tensor is written once, before it is read.
Status CheckOrder(const Graph& graph) {
  const std::vector<bool> is_output = OutputsOfNodes(graph);
  std::vector<bool> written(graph.tensors.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    // A constant without elements (no axes, the shape of a scalar) has no bytes to tell it by.
    const bool is_empty = std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0;
    written[i] = tensor.is_constant() || tensor.is_variable || (is_empty && !is_output[i]);
  }
  for (const int32_t input : graph.inputs) {
    // Callers write their inputs; constants lie in the file.
    if (graph.tensors[input].is_constant()) {
      return CorruptModel("%s is an input of the model and a constant",
                          DescribeUse(graph, input).c_str());
    }
    written[input] = true;
  }
  for (const Node& node : graph.nodes) {
    for (const int32_t input : node.inputs) {
      if (input >= 0 && !written[input]) {
        return CorruptModel("%s reads %s before anything has written it",
                            Describe(graph, node).c_str(), Describe(graph, input).c_str());
      }
    }
    for (const int32_t output : node.outputs) {
      if (written[output]) {
        return CorruptModel("%s writes %s, which is %s", Describe(graph, node).c_str(),
                            Describe(graph, output).c_str(),
                            graph.tensors[output].is_constant() ? "a constant" : "written already");
      }
      written[output] = true;
    }
  }
  for (const int32_t output : graph.outputs) {
    if (!written[output]) {
      return CorruptModel("graph output %s is never written", Describe(graph, output).c_str());
    }
  }
  return Status();
}

// Shapes that no inference replaces: those of inputs, constants and tensors that no node uses.
Status CheckStoredShapes(const Graph& graph) {
  const std::vector<bool> is_output = OutputsOfNodes(graph);
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    const int32_t index = static_cast<int32_t>(i);
    if (std::string(DataTypeName(tensor.type)) == "unknown") {
      return Unsupported("%s has type %d, which Atoll does not know",
                         DescribeUse(graph, index).c_str(), static_cast<int>(tensor.type));
    }
    if (is_output[i]) continue;
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(),
                    [](int32_t dim) { return dim < 0; })) {
      const bool is_input =
          std::find(graph.inputs.begin(), graph.inputs.end(), index) != graph.inputs.end();
      return Unsupported("%s has the dynamic shape %s; %s", DescribeUse(graph, index).c_str(),
                         ShapeString(tensor.shape).c_str(),
                         is_input ? "give this input a shape when loading the model, or convert it "
                                    "with fixed sizes"
                                  : "convert the model with fixed sizes");
    }
    if (!HasAllowedSize(tensor)) {
      return CorruptModel("%s: shape %s of %s is larger than %lld bytes",
                          DescribeUse(graph, index).c_str(), ShapeString(tensor.shape).c_str(),
                          DataTypeName(tensor.type), static_cast<long long>(kMaxTensorBytes));
    }
    if (tensor.is_constant() && static_cast<int64_t>(tensor.data.size()) < tensor.byte_size()) {
      return CorruptModel("%s: shape %s of %s needs %lld bytes, its buffer has %zu",
                          DescribeUse(graph, index).c_str(), ShapeString(tensor.shape).c_str(),
                          DataTypeName(tensor.type), static_cast<long long>(tensor.byte_size()),
                          tensor.data.size());
    }
  }
  return Status();
}

Status CheckQuantization(const Graph& graph) {
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    ATOLL_RETURN_IF_ERROR(CheckQuantization(graph, static_cast<int32_t>(i)));
  }
  return Status();
}

}  // namespace atollrt
