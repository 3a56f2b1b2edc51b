// SPDX-License-Identifier: Apache-2.0
//
// How much a node computes, so that random and damaged models can be kept to milliseconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>

#include "runtime/graph/graph.h"

namespace atollrt {

// Multiply-accumulates, or elements that are looked at, beyond one per element of an operand. A
// number that cannot overflow, whatever sizes a damaged model names. The loader has accepted
// `graph`, or it keeps the loader's rules.
inline double WorkOf(const Graph& graph, const Node& node) {
  const auto elements = [](const Tensor& tensor) {
    return static_cast<double>(tensor.element_count());
  };
  if (const auto* pool = std::get_if<Pool2DOptions>(&node.options)) {
    const Shape& input = graph.Input(node, 0)->shape;
    return elements(graph.Output(node)) * std::min(pool->filter_h, input[1]) *
           std::min(pool->filter_w, input[2]);
  }
  switch (node.type) {
    case OpType::kTRANSPOSE_CONV: {
      // Every element of the output meets the weights of its phase, even where there is no input;
      // or every element of the input meets every weight of its channel.
      const auto& options = std::get<Conv2DOptions>(node.options);
      const Shape& weights = graph.Input(node, 1)->shape;  // [outputs, h, w, inputs]
      const auto taps = [](double size, double stride) { return std::ceil(size / stride); };
      const double phase =
          taps(weights[1], options.stride_h) * taps(weights[2], options.stride_w) * weights[3];
      return std::max(elements(graph.Output(node)) * phase,
                      elements(*graph.Input(node, 2)) * weights[0] * weights[1] * weights[2]);
    }
    case OpType::kBATCH_MATMUL: {
      const bool transposed = std::get<BatchMatMulOptions>(node.options).transpose_lhs;
      const Shape& lhs = graph.Input(node, 0)->shape;
      return elements(graph.Output(node)) * lhs[lhs.size() - (transposed ? 2 : 1)];
    }
    case OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM: {
      const Shape& weights = graph.Input(node, 1)->shape;  // [units, inputs]
      return 4 * elements(graph.Output(node)) * (static_cast<double>(weights[0]) + weights[1]);
    }
    case OpType::kSVDF:
      return graph.Input(node, 0)->shape[0] *
             (elements(*graph.Input(node, 1)) + elements(*graph.Input(node, 2)));
    default:
      return static_cast<double>(MultiplyAccumulates(graph, node));
  }
}

}  // namespace atollrt
