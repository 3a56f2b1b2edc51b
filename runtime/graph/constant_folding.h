// SPDX-License-Identifier: Apache-2.0
//
// Constant folding: a node whose outputs depend on constants and shapes alone is computed while
// the model is loaded and leaves the graph; its outputs become constants. Converters write the
// sizes that a layer takes as such nodes (SHAPE, STRIDED_SLICE, MUL, PACK, then RESHAPE), and shape
// inference can only go on with their values. Part of the loader.
//
// So are those that make float32 of constants of half precision, for which kernels have no use.
// Of the others, only tensors of at most kMaxFoldedBytes take part, and only those of the types
// that sizes are computed with and without quantization, and all of them together are bounded by
// the size of the file, so a hostile one cannot make loading expensive.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/graph/graph.h"

namespace atollrt {

inline constexpr int64_t kMaxFoldedBytes = 1024;

struct ConstantFolding {
  // Computes the outputs of a node: one buffer each, as large as the tensor. All inputs that it
  // reads are constants (SHAPE reads none). An error means that the node stays what it is.
  using Evaluate = Status (*)(const Graph& graph, const Node& node, std::span<Buffer> outputs);

  Evaluate evaluate = nullptr;
  std::vector<Buffer>* values = nullptr;  // grows; the graph points into its buffers
  int64_t* bytes_left = nullptr;          // that they may still take; what needs more stays a node

  // Whether the outputs of `node`, whose shapes are known, have become constants.
  bool Fold(Graph* graph, const Node& node) const;
};

}  // namespace atollrt
