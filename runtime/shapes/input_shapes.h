// SPDX-License-Identifier: Apache-2.0
//
// Other shapes for the inputs of a graph than those that were stored, before shapes are inferred.
#pragma once

#include <span>
#include <string>

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// The shape that an input of the model shall have instead of the stored one.
struct InputShape {
  std::string name{};  // of the input; empty: `index` says which one
  int32_t index = -1;  // among the inputs; -1: the only one
  // As many sizes as are stored, each at least 1. Two sizes for an input of three or four, [n, h,
  // w] or [n, h, w, c], are its height and width; the others stay.
  Shape shape;
};

// Gives inputs of `graph` these shapes and says which have changed, for errors that follow: "with
// input 'x' of shape [1, 320, 320, 3]", or nothing. kInvalidArgument if there is no such input,
// with those that there are, or it cannot have that shape; kUnsupported if the graph was compiled
// for other ones.
Result<std::string> SetInputShapes(std::span<const InputShape> input_shapes, Graph* graph);

}  // namespace atollrt
