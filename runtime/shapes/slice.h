// SPDX-License-Identifier: Apache-2.0
//
// SLICE and STRIDED_SLICE with everything that their many notations allow (negative indices,
// masks, ellipsis, new axes) resolved into plain numbers. Shape inference and the kernels use the
// same result. Pure functions.
#pragma once

#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// Elements begin, begin + stride, ... of one input axis, `count` of them, all inside.
struct SliceAxis {
  int32_t begin = 0;
  int32_t stride = 1;  // may be negative, never 0
  int32_t count = 0;
};

struct ResolvedSlice {
  std::vector<SliceAxis> axes;  // of the input, all of them
  Shape output;                 // without dropped axes, with new ones
};

// What a SLICE or STRIDED_SLICE takes. Checks the number of inputs, their shapes and all values;
// what TensorFlow Lite clamps is clamped. kUnsupported if an operand is not a constant.
Result<ResolvedSlice> ResolveSlice(const Graph& graph, const Node& node);

}  // namespace atollrt
