// SPDX-License-Identifier: Apache-2.0
//
// Operators that only move elements, as plans: an optional fill, then strided copies between the
// node's tensors. The CPU runs a plan as it is; whatever else can copy may translate it. The
// operators: BATCH_TO_SPACE_ND, DEPTH_TO_SPACE, EXPAND_DIMS, MIRROR_PAD, PACK, PAD, PADV2,
// RESHAPE, SLICE, SPACE_TO_BATCH_ND, SPACE_TO_DEPTH, SPLIT, SPLIT_V, SQUEEZE, STRIDED_SLICE, TILE,
// TRANSPOSE, UNPACK.
#pragma once

#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/strided_copy.h"

namespace atollrt {

// One side of a copy.
struct MoveOperand {
  enum class Kind { kInput, kOutput, kScratch };
  Kind kind = Kind::kInput;
  size_t position = 0;  // among the node's inputs or outputs
};

struct MovePlan {
  // All elements of `target` become `element`.
  struct Fill {
    MoveOperand target;
    int64_t count = 0;             // 0: no fill
    std::vector<uint8_t> element;  // the bytes of one
  };
  struct Copy {
    MoveOperand from, to;
    StridedCopy copy;
  };
  Fill fill;  // first
  std::vector<Copy> copies;
  size_t scratch_bytes = 0;
};

// `graph` as the loader made it, `node` one of the operators above. All element types of fixed
// size; input and output must have the same. Errors do not name the node.
Result<MovePlan> MakeMovePlan(const Graph& graph, const Node& node);

}  // namespace atollrt
