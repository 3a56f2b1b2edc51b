// SPDX-License-Identifier: Apache-2.0
//
// Graph compiler: Graph -> compiled partitions for one device, and a reason for every node that is
// in none. Partitions, compiles, and, where a set does not fit, gives up a node and partitions
// anew, or cuts the set, until everything fits. Pure function of graph and device. Its time grows
// about as fast as the graph.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "delegate/compiler.h"
#include "delegate/partitioner.h"

namespace atollrt {

struct CompiledPartition {
  std::vector<int32_t> nodes;
  SetBoundary boundary;
  CompiledSet compiled;
};

struct CompiledGraph {
  std::vector<CompiledPartition> partitions;  // by their first nodes
  std::vector<std::string> refusals;          // per node; empty if it is in a partition
  // What it took, which tests hold against the size of the graph.
  int32_t rounds = 0;          // of partitioning
  int64_t compiled_nodes = 0;  // of all sets that were compiled or could not be
};

// `max_nodes` and `stages` are those of PartitionLimits. Errors are contradictions in the model and
// name the node.
Result<CompiledGraph> CompileGraph(const Graph& graph, const DeviceInfo& device, int32_t max_nodes,
                                   std::span<const int32_t> stages);

}  // namespace atollrt
