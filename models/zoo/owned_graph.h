// SPDX-License-Identifier: Apache-2.0
//
// OwnedGraph: a graph and the bytes of its constants, made tensor by tensor and node by node. The
// builders of networks (network_builder.h) and of models for tests (tests/support/model_builder.h,
// random_graph.h) differ in what they know of layers and numbers, and put it down here.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/graph.h"

namespace atollrt {

// What the numbers of a tensor stand for.
struct NumberFormat {
  DataType type = DataType::kInt8;
  Quantization quantization;
};

struct OwnedGraph {
  Graph graph;                                 // its constants point into `constants`
  std::deque<std::vector<uint8_t>> constants;  // moving a deque moves none of its elements

  OwnedGraph() = default;
  OwnedGraph(OwnedGraph&&) = default;
  OwnedGraph& operator=(OwnedGraph&&) = default;

  const Tensor& tensor(int32_t index) const { return graph.tensors[static_cast<size_t>(index)]; }
  Tensor& tensor(int32_t index) { return graph.tensors[static_cast<size_t>(index)]; }

  // These add one tensor and return its index; without a name it is called "t" and that.
  int32_t AddTensor(NumberFormat format, Shape shape, std::string name = "") {
    const int32_t index = static_cast<int32_t>(graph.tensors.size());
    Tensor tensor;
    tensor.name = name.empty() ? "t" + std::to_string(index) : std::move(name);
    tensor.type = format.type;
    tensor.shape = std::move(shape);
    tensor.quantization = std::move(format.quantization);
    graph.tensors.push_back(std::move(tensor));
    return index;
  }
  int32_t AddInput(NumberFormat format, Shape shape, std::string name = "") {
    graph.inputs.push_back(AddTensor(std::move(format), std::move(shape), std::move(name)));
    return graph.inputs.back();
  }
  int32_t AddConstant(NumberFormat format, Shape shape, std::vector<uint8_t> bytes,
                      std::string name = "") {
    const int32_t index = AddTensor(std::move(format), std::move(shape), std::move(name));
    constants.push_back(std::move(bytes));
    tensor(index).data = constants.back();
    return index;
  }
  // Adds a constant of numbers that stand for themselves; `type` is stored as T is here.
  template <typename T>
  int32_t AddNumbers(DataType type, Shape shape, const std::vector<T>& values,
                     std::string name = "") {
    std::vector<uint8_t> bytes(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return AddConstant({type, {}}, std::move(shape), std::move(bytes), std::move(name));
  }
  // A node with these outputs, which are there; the reference is good until the next one.
  Node& AddNode(OpType type, std::vector<int32_t> inputs, std::vector<int32_t> outputs,
                OpOptions options = {}) {
    Node& node = graph.nodes.emplace_back();
    node.type = type;
    node.inputs = std::move(inputs);
    node.outputs = std::move(outputs);
    node.options = std::move(options);
    return node;
  }

  // What tensors that differ along `axis` alone become together.
  Shape ConcatenatedShape(const std::vector<int32_t>& inputs, int32_t axis) const {
    const size_t dimension = static_cast<size_t>(axis);
    Shape shape = tensor(inputs[0]).shape;
    shape[dimension] = 0;
    for (const int32_t input : inputs) shape[dimension] += tensor(input).shape[dimension];
    return shape;
  }
};

}  // namespace atollrt
