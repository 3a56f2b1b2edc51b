// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a .tflite file -> graphs. The bytes are hostile: everything that graph.h promises is
// checked here, and a failure names the tensor or node and the numbers. Pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/base/status.h"
#include "runtime/graph/constant_folding.h"
#include "runtime/graph/graph.h"

namespace atollrt {

struct LoadedModel {
  std::vector<Graph> graphs;  // one per subgraph; the first is the model, CALL_ONCE names others
  std::vector<Variable> variables;
  std::vector<Buffer> folded;  // constants that are not in the file (constant_folding.h)
};

// Reads all subgraphs. The graphs point into `bytes`, which must outlive them. `evaluate` computes
// nodes for constant folding; nullptr: none is folded. kCorruptModel for bytes that are no valid
// model, kUnsupported for valid ones with something that Atoll does not know (types, dynamic
// shapes, operators with unknown shapes).
Result<LoadedModel> LoadTflite(std::span<const uint8_t> bytes,
                               ConstantFolding::Evaluate evaluate = nullptr);

}  // namespace atollrt
