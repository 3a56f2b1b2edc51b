// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a .tflite file -> graphs. The bytes are hostile: everything that graph.h promises is
// checked here, and a failure names the tensor or node and the numbers. Pure function.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/graph/constant_folding.h"
#include "runtime/graph/graph.h"
#include "runtime/shapes/input_shapes.h"

namespace atollrt {

struct LoadedModel {
  std::vector<Graph> graphs;  // one per subgraph; the first is the model, CALL_ONCE names others
  std::vector<Variable> variables;
  ModelExtras extras;
  std::vector<Buffer> folded;  // constants that are not in the file (constant_folding.h)
};

// Reads all subgraphs. The graphs point into `bytes`, which must outlive them. `evaluate` computes
// nodes for constant folding; nullptr: none is folded. `input_shapes` are those of inputs of the
// first graph, also of such as have dynamic ones in the file; all other shapes follow from them.
//
// kCorruptModel for bytes that are no valid model, kUnsupported for valid ones with something that
// Atoll does not know (types, dynamic shapes, operators with unknown shapes). Of `input_shapes`:
// kInvalidArgument if there is no such input, with those that there are, or it cannot have that
// shape; kUnsupported if the model was compiled for other ones; and what InferShapes gives for the
// first node that they do not fit.
Result<LoadedModel> LoadTflite(std::span<const uint8_t> bytes,
                               ConstantFolding::Evaluate evaluate = nullptr,
                               std::span<const InputShape> input_shapes = {});

}  // namespace atollrt
