// SPDX-License-Identifier: Apache-2.0
#include "quantize/edited_graph.h"

#include <algorithm>
#include <utility>

namespace atollrt {

Result<std::span<uint8_t>> EditedGraph::NewValue(size_t bytes) {
  if (static_cast<int64_t>(bytes) > room) {
    return ResourceExhausted(
        "a constant of %zu bytes, with room for %lld: the constants that are made of this model's, "
        "which its nodes share, take more memory than its size accounts for",
        bytes, static_cast<long long>(room));
  }
  room -= static_cast<int64_t>(bytes);
  ATOLL_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(bytes));
  values.push_back(std::move(buffer));
  return values.back().bytes();
}

Result<int32_t> EditedGraph::NewFloats(const std::string& name, const Shape& shape) {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  ATOLL_ASSIGN_OR_RETURN(const std::span<uint8_t> bytes,
                         NewValue(static_cast<size_t>(tensor.byte_size())));
  tensor.data = bytes;
  graph.tensors.push_back(std::move(tensor));
  return static_cast<int32_t>(graph.tensors.size() - 1);
}

std::span<float> EditedGraph::OwnFloats(int32_t tensor) {
  const std::span<const uint8_t> data = graph.tensors[tensor].data;
  return {reinterpret_cast<float*>(const_cast<uint8_t*>(data.data())),
          static_cast<size_t>(graph.tensors[tensor].element_count())};
}

int64_t RoomForValues(const Graph& graph) {
  constexpr int64_t kMostOfByte = 16, kMostOfSmallModel = int64_t{128} << 20;
  return kMostOfByte * ConstantBytes(graph) + kMostOfSmallModel;
}

std::span<const float> Floats(const Tensor& tensor) {
  return {reinterpret_cast<const float*>(tensor.data.data()),
          static_cast<size_t>(tensor.element_count())};
}

std::vector<int32_t> Producers(const Graph& graph) {
  std::vector<int32_t> producers(graph.tensors.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const int32_t output : graph.nodes[i].outputs) {
      if (output >= 0) producers[output] = static_cast<int32_t>(i);
    }
  }
  return producers;
}

std::vector<int32_t> ReaderCounts(const Graph& graph) {
  std::vector<int32_t> counts(graph.tensors.size(), 0);
  for (const Node& node : graph.nodes) {
    for (const int32_t input : node.inputs) {
      if (input >= 0) ++counts[input];
    }
  }
  for (const int32_t output : graph.outputs) ++counts[output];
  return counts;
}

void RemoveNodes(std::vector<bool> marked, Graph* graph) {
  std::vector<bool> read(graph->tensors.size(), false);
  for (const int32_t output : graph->outputs) read[output] = true;
  for (size_t i = graph->nodes.size(); i-- > 0;) {
    const Node& node = graph->nodes[i];
    const bool has_effects =
        node.outputs.empty() ||
        std::any_of(node.inputs.begin(), node.inputs.end(), [graph](int32_t input) {
          return input >= 0 && graph->tensors[input].is_variable;
        });
    if (!marked[i] && !has_effects) {
      marked[i] = std::none_of(node.outputs.begin(), node.outputs.end(),
                               [&read](int32_t output) { return output >= 0 && read[output]; });
    }
    if (marked[i]) continue;
    for (const int32_t input : node.inputs) {
      if (input >= 0) read[input] = true;
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    if (marked[i]) continue;
    if (kept != i) graph->nodes[kept] = std::move(graph->nodes[i]);
    ++kept;
  }
  graph->nodes.resize(kept);
}

bool IsFilter(const Node& node) {
  switch (node.type) {
    case OpType::kCONV_2D:
    case OpType::kDEPTHWISE_CONV_2D:
    case OpType::kTRANSPOSE_CONV:
    case OpType::kFULLY_CONNECTED:
      return true;
    default:
      return false;
  }
}

size_t FilterInput(const Node& node) { return node.type == OpType::kTRANSPOSE_CONV ? 2 : 0; }

size_t FilterBias(const Node& node) { return node.type == OpType::kTRANSPOSE_CONV ? 3 : 2; }

int32_t ChannelDimension(const Node& node) {
  return node.type == OpType::kDEPTHWISE_CONV_2D ? 3 : 0;
}

Activation* FusedActivationOf(Node* node) {
  switch (node->type) {
    case OpType::kCONV_2D:
    case OpType::kDEPTHWISE_CONV_2D:
      return &std::get<Conv2DOptions>(node->options).activation;
    case OpType::kFULLY_CONNECTED:
      return &std::get<FullyConnectedOptions>(node->options).activation;
    case OpType::kADD:
    case OpType::kSUB:
    case OpType::kMUL:
    case OpType::kDIV:
      return &std::get<ElementwiseOptions>(node->options).activation;
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D:
      return &std::get<Pool2DOptions>(node->options).activation;
    default:
      return nullptr;
  }
}

}  // namespace atollrt
