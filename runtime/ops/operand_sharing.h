// SPDX-License-Identifier: Apache-2.0
//
// What the operands of a CPU node may have in common: memory that its output may take over from an
// input, and runs of bytes that the node only moves, so that there is nothing left to do if both
// tensors have them in one place. Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/graph.h"

namespace atollrt {

struct OperandSharing {
  // Bytes of an input that become bytes of an output, unchanged.
  struct Run {
    int32_t input = 0, output = 0;  // positions among the node's operands
    int64_t input_offset = 0, output_offset = 0, bytes = 0;
  };

  // Positions of inputs that are as large as the only output, which may begin where they begin:
  // every element of it is written after the last look at that element of these inputs, and at
  // most once.
  std::vector<int32_t> overwritable;
  // All that the node does; empty if it does anything else.
  std::vector<Run> runs;
};

// `node` has been prepared (PrepareCpuNode) without an error.
OperandSharing SharingOf(const Graph& graph, const Node& node);

}  // namespace atollrt
