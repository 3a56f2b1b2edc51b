// SPDX-License-Identifier: Apache-2.0
//
// The order in which nodes and partitions of a graph run. Pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// Nodes of a graph that run as one, with the tensors that they read from outside and write.
struct StepNodes {
  std::vector<int32_t> nodes;
  std::vector<int32_t> inputs;  // -1: absent
  std::vector<int32_t> outputs;
};

// A stable topological order, as positions in `steps`, which hold every node of the graph once: a
// step runs when everything that it reads has been written, and what touches the same state keeps
// its order. kInternal if the steps form a cycle.
Result<std::vector<size_t>> OrderSteps(const Graph& graph, const std::vector<StepNodes>& steps);

}  // namespace atollrt
