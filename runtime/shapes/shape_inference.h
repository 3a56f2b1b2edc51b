// SPDX-License-Identifier: Apache-2.0
//
// Shapes of intermediate tensors are advisory in model files: some real ones store [] for all of
// them. InferShapes computes them from the inputs and constants, in execution order.
#pragma once

#include "atoll/status.h"
#include "runtime/graph/constant_folding.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// One dimension of a convolution or pooling window (docs/quantization.md §3).
struct WindowSize {
  int32_t input = 0, filter = 0, stride = 0, dilation = 1;
};
struct WindowResult {
  int32_t output = 0;      // positions; 0 if a VALID window is larger than its input
  int32_t pad_before = 0;  // cells of padding before the first one
};
// All sizes >= 1. VALID has no padding.
WindowResult ResolveWindow(const WindowSize& size, Padding padding);

// `axis` in [-rank, rank) as [0, rank), or -1 if it is out of range.
int32_t NormalizeAxis(int64_t axis, size_t rank);

// NumPy broadcasting; false if the shapes do not fit together.
bool BroadcastShapes(const Shape& a, const Shape& b, Shape* result);

// Checks the number of inputs and outputs, ranks and options of every node that it knows and sets
// the shape of its outputs. Nodes whose operator it does not know keep stored shapes (they are
// refused later, by name). Removes the nodes that `folding` folds, unless it is nullptr.
// kCorruptModel for contradictions, kUnsupported for shapes that depend on data.
Status InferShapes(Graph* graph, const ConstantFolding* folding = nullptr);

}  // namespace atollrt
