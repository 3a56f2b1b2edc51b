// SPDX-License-Identifier: Apache-2.0
//
// What the fuzzers of models share: a bound on work and memory, so that a mutated dimension costs
// milliseconds, and inputs with bytes of all kinds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/graph/graph.h"
#include "tests/support/work.h"

namespace atollrt {

// Less than 20 million of WorkOf and 16 MB of tensors.
inline bool IsSmall(const Graph& graph) {
  constexpr double kMaxWork = 20'000'000;
  constexpr int64_t kMaxBytes = int64_t{16} << 20;
  double work = 0;
  for (const Node& node : graph.nodes) work += WorkOf(graph, node);
  int64_t bytes = 0;
  for (const Tensor& tensor : graph.tensors) {
    bytes += tensor.byte_size();
    if (bytes >= kMaxBytes) return false;
  }
  return work < kMaxWork;
}

inline void FillWithPattern(std::span<uint8_t> bytes) {
  uint8_t* const data = bytes.data();  // tests are not optimized
  for (size_t i = 0; i < bytes.size(); ++i) {
    data[i] = static_cast<uint8_t>((i * 2654435761u) >> 13);
  }
}

}  // namespace atollrt
