// SPDX-License-Identifier: Apache-2.0
//
// What the fuzzers of models share: a bound on work and memory, so that a mutated dimension costs
// milliseconds, and inputs with bytes of all kinds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "runtime/graph/graph.h"

namespace atollrt {

// Less than 20 million multiply-accumulates (or elements under pooling windows) and 64 MB of
// tensors.
inline bool IsSmall(const Graph& graph) {
  constexpr int64_t kMaxWork = 20'000'000;
  constexpr int64_t kMaxBytes = int64_t{64} << 20;
  int64_t work = 0;
  for (const Node& node : graph.nodes) {
    work += MultiplyAccumulates(graph, node);
    if (const auto* pool = std::get_if<Pool2DOptions>(&node.options)) {
      const Shape& input = graph.Input(node, 0)->shape;
      work += graph.Output(node).element_count() * std::min(pool->filter_h, input[1]) *
              std::min(pool->filter_w, input[2]);
    }
    if (work < 0 || work >= kMaxWork) return false;
  }
  int64_t bytes = 0;
  for (const Tensor& tensor : graph.tensors) {
    bytes += tensor.byte_size();
    if (bytes >= kMaxBytes) return false;
  }
  return true;
}

inline void FillWithPattern(std::span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>((i * 2654435761u) >> 13);
  }
}

}  // namespace atollrt
