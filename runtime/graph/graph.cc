// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/graph.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/base/bytes.h"

namespace atollrt {

const char* DataTypeName(DataType type) {
  switch (type) {
#define ATOLL_DATA_TYPE(name, number, text, ...) \
  case DataType::name:                           \
    return text;
#include "runtime/graph/data_types.inc"
  }
  return "unknown";
}

size_t DataTypeSize(DataType type) {
  switch (type) {
#define ATOLL_DATA_TYPE(name, number, text, bytes, c_name) \
  case DataType::name:                                     \
    return bytes;
#include "runtime/graph/data_types.inc"
  }
  return 0;
}

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (const int32_t dim : shape) count *= dim;
  return count;
}

std::string ShapeString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::string OpTypeName(OpType type) {
  switch (type) {
#define ATOLL_OP_NAME(name, number) \
  case OpType::k##name:             \
    return #name;
#define ATOLL_OP(name, number, ...) ATOLL_OP_NAME(name, number)
#include "runtime/graph/operators.inc"
  }
  return Format("operator %d", static_cast<int>(type));
}

std::string Describe(const Graph& graph, int32_t tensor) {
  return Format("tensor %d '%s'", tensor, graph.tensors[static_cast<size_t>(tensor)].name.c_str());
}

std::string Describe(const Graph& graph, const Node& node) {
  const std::string text =
      Format("node %d (%s)", static_cast<int>(&node - graph.nodes.data()), node.op_name().c_str());
  return node.outputs.empty() ? text : text + Format(" '%s'", graph.Output(node).name.c_str());
}

std::vector<std::pair<int32_t, int32_t>> StateOrder(const Graph& graph) {
  std::vector<std::pair<int32_t, int32_t>> order;
  std::map<int32_t, int32_t> last_by_tensor;
  std::map<int32_t, int32_t> last_by_variable;
  int32_t last_call = -1;  // CALL_ONCE may touch every variable
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const int32_t index = static_cast<int32_t>(i);
    const auto follow = [&](std::map<int32_t, int32_t>* last, int32_t key, int32_t otherwise) {
      const auto [entry, is_first] = last->insert({key, otherwise});
      if (entry->second >= 0 && entry->second != index) order.push_back({entry->second, index});
      entry->second = index;
    };
    for (const int32_t tensor : node.inputs) {
      if (tensor >= 0 && graph.tensors[tensor].is_variable) follow(&last_by_tensor, tensor, -1);
    }
    if (const auto* options = std::get_if<VariableOptions>(&node.options)) {
      follow(&last_by_variable, options->variable, last_call);
    }
    if (node.type == OpType::kCALL_ONCE) {
      if (last_call >= 0) order.push_back({last_call, index});
      for (const auto& [variable, last] : last_by_variable) order.push_back({last, index});
      last_by_variable.clear();
      last_call = index;
    }
  }
  return order;
}

int64_t ConstantBytes(const Graph& graph) {
  // Sorted; the map is that of the writer, for the library's size.
  std::map<std::pair<const uint8_t*, size_t>, uint32_t> ranges;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.is_constant()) ranges.insert({{tensor.data.data(), tensor.data.size()}, 0});
  }
  int64_t bytes = 0;
  const uint8_t* seen = nullptr;  // the end of what was counted
  for (const auto& [range, unused] : ranges) {
    const uint8_t* const begin = seen == nullptr ? range.first : std::max(range.first, seen);
    const uint8_t* const end = range.first + range.second;
    if (begin >= end) continue;
    bytes += end - begin;
    seen = end;
  }
  return bytes;
}

int64_t MultiplyAccumulates(const Graph& graph, const Node& node) {
  const Tensor* weights = graph.Input(node, 1);
  if (weights == nullptr || node.outputs.empty()) return 0;
  const int64_t outputs = graph.Output(node).element_count();
  const Shape& w = weights->shape;
  switch (node.type) {
    case OpType::kCONV_2D:
      return w.size() == 4 ? outputs * w[1] * w[2] * w[3] : 0;
    case OpType::kDEPTHWISE_CONV_2D:
      return w.size() == 4 ? outputs * w[1] * w[2] : 0;
    case OpType::kFULLY_CONNECTED:
      return w.size() == 2 ? outputs * w[1] : 0;
    case OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM:
      return w.size() == 2 ? outputs * 4 * (int64_t{w[0]} + w[1]) : 0;
    case OpType::kTRANSPOSE_CONV:
      return graph.Input(node, 2)->element_count() * w[0] * w[1] * w[2];
    default:
      return 0;
  }
}

std::vector<int64_t> ConstantIntegers(const Tensor& tensor) {
  const size_t size = DataTypeSize(tensor.type);
  std::vector<int64_t> values(static_cast<size_t>(tensor.element_count()));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t* bytes = tensor.data.data() + i * size;
    values[i] = size == 8 ? LoadLittleEndian<int64_t>(bytes) : LoadLittleEndian<int32_t>(bytes);
  }
  return values;
}

}  // namespace atollrt
