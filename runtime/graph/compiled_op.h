// SPDX-License-Identifier: Apache-2.0
//
// The custom operator that stands for a partition compiled for a device (docs/executable.md, "In a
// model"). Its options are a header, which names the subgraph that the partition was made from, and
// the executable. The loader puts the subgraph's nodes in the operator's place, so a compiled model
// runs everywhere; a delegate may take the executable instead of compiling. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

inline constexpr char kCompiledOpName[] = "atoll-compiled-partition";

// The metadata whose buffer lists weights that are there packed, too (docs/executable.md, "Packed
// weights"): for each the subgraph, its tensor and the buffer, 32 bits each. They begin at the
// first multiple of 64 bytes of the file that is in the buffer.
inline constexpr char kPackedWeightsMetadata[] = "atoll-packed-weights";
inline constexpr size_t kPackedTensorBytes = 12;

struct CompiledOp {
  // Of the model, not the first. 0: none, as in what delegates of other runtimes are given; then
  // the operator stays in the graph, and runs on a device that takes the executable, or not at all.
  int32_t subgraph = 0;
  std::span<const uint8_t> executable;  // as stored; not looked into
};

bool IsCompiledOp(const Node& node);

std::vector<uint8_t> EncodeCompiledOp(const CompiledOp& op);
// The result points into `options`. kCorruptModel, or kUnsupported for a newer layout.
Result<CompiledOp> DecodeCompiledOp(std::span<const uint8_t> options);

}  // namespace atollrt
