// SPDX-License-Identifier: Apache-2.0
//
// Compiler: a set of nodes -> an Executable for one device. Plans on-chip memory (lifetimes of
// activations, resident or streamed parameters), emits one or a few instructions per node
// (docs/isa.md) and estimates their cycles. Pure function of graph and device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/device.h"
#include "driver/executable.h"
#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/ops/move_plan.h"

namespace atollrt {

struct CompiledSet {
  Executable executable;
  std::string note;  // which parameters are streamed and why; empty if none are
};

struct CompileFailure {
  // The node to take out of the set when it does not fit on chip (kResourceExhausted).
  int32_t node = -1;
};

// `set`, `inputs` and `outputs` are as the partitioner makes them; the executable moves inputs and
// outputs in this order. kResourceExhausted if the activations do not fit on chip even with all
// parameters streamed: `failure` then names the node at the peak. Other errors name the node and
// what is wrong with it.
Result<CompiledSet> CompileSet(const Graph& graph, const std::vector<int32_t>& set,
                               const std::vector<int32_t>& inputs,
                               const std::vector<int32_t>& outputs, const DeviceInfo& device,
                               CompileFailure* failure);

// Operators that become COPY instructions, with a FILL in front where they pad.
bool IsMove(OpType type);
// A plan that these instructions can follow: bytes go from inputs to outputs, forwards, in copies
// of at most three loops.
bool IsCopyProgram(const MovePlan& plan);

// The modelled time of one inference: device cycles and transfer over the link.
double EstimateSeconds(const DeviceInfo& device, uint64_t cycles, uint64_t link_bytes);

}  // namespace atollrt
