// SPDX-License-Identifier: Apache-2.0
//
// A graph in the making: nodes and tensors that point into a model, and constants of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/graph/graph.h"
#include "runtime/model.h"

namespace atollrt {

struct EditedGraph {
  std::shared_ptr<const Model> source;  // what the graph points into, beside `values`
  Graph graph;
  std::vector<Buffer> values;
  int64_t room = 0;  // what more values may take, in bytes: RoomForValues at first

  // Zeroed memory that lives as long as this; kResourceExhausted if there is no room.
  Result<std::span<uint8_t>> NewValue(size_t bytes);
  // A new constant of float32, to be filled in; its tensor's number.
  Result<int32_t> NewFloats(const std::string& name, const Shape& shape);
  // The values of a float32 constant that NewFloats made.
  std::span<float> OwnFloats(int32_t tensor);
};

// What constants that are computed from those of `graph` may take. Nodes may share constants, and
// each may need its own then, but a file of a kilobyte must not ask for gigabytes.
int64_t RoomForValues(const Graph& graph);

std::span<const float> Floats(const Tensor& tensor);

// Node that writes each tensor; -1: none.
std::vector<int32_t> Producers(const Graph& graph);
// How many times each tensor is read, as an output of the graph, too.
std::vector<int32_t> ReaderCounts(const Graph& graph);

// Removes nodes whose mark is set, and all whose outputs nobody reads.
void RemoveNodes(std::vector<bool> marked, Graph* graph);

// Whether a node is a layer of constant weights: CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV or
// FULLY_CONNECTED.
bool IsFilter(const Node& node);
// Positions among the inputs of such a node.
size_t FilterInput(const Node& node);
inline constexpr size_t kFilterWeights = 1;
size_t FilterBias(const Node& node);
// The dimension of the weights that counts output channels.
int32_t ChannelDimension(const Node& node);
// The fused activation; nullptr if the node can have none.
Activation* FusedActivationOf(Node* node);

}  // namespace atollrt
