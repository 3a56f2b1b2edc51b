// SPDX-License-Identifier: Apache-2.0
#include "delegate/graph_compiler.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace atollrt {
namespace {

// In so many rounds the first set that does not fit into on-chip memory loses a node, one in each,
// if it is not larger than that: what there is of networks needs no more. After that, and for large
// sets, cutting them is what takes a bounded number of steps.
constexpr int32_t kRefusingRounds = 16;
constexpr size_t kRefusingNodes = 1024;

}  // namespace

Result<CompiledGraph> CompileGraph(const Graph& graph, const DeviceInfo& device, int32_t max_nodes,
                                   std::span<const int32_t> stages) {
  const PartitionLimits limits{.memory_bytes = static_cast<int64_t>(device.memory_bytes),
                               .max_nodes = max_nodes,
                               .stages = stages};
  CompiledGraph result;
  BoundaryFinder boundaries(graph);
  std::vector<std::string> refused(graph.nodes.size());
  // What became of the sets of this round and earlier ones, by their first nodes: most are the same
  // in the next one.
  struct Known {
    std::vector<int32_t> set;
    std::vector<CompiledPartition> partitions;
  };
  std::vector<Known> known(graph.nodes.size());
  NodeSets sets;
  for (bool all_fit = false; !all_fit; ++result.rounds) {
    sets = PartitionGraph(graph, limits, refused);
    all_fit = true;
    for (const std::vector<int32_t>& set : sets.sets) {
      Known& last = known[set[0]];
      if (last.set == set) continue;
      last = {};
      const bool refuses = result.rounds < kRefusingRounds && set.size() <= kRefusingNodes;
      bool fits = true;
      std::vector<std::vector<int32_t>> pieces = {set};  // the next one last
      while (!pieces.empty()) {
        CompiledPartition& partition = last.partitions.emplace_back();
        partition.nodes = std::move(pieces.back());
        pieces.pop_back();
        partition.boundary = boundaries.Find(partition.nodes);
        result.compiled_nodes += static_cast<int64_t>(partition.nodes.size());
        CompileFailure failure;
        Result<CompiledSet> one = CompileSet(
            graph, partition.nodes, partition.boundary.inputs, partition.boundary.OutputsAndState(),
            device, &failure, refuses ? WhenTooLarge::kRefusePeak : WhenTooLarge::kCut);
        if (one.ok()) {
          partition.compiled = *std::move(one);
          continue;
        }
        last.partitions.pop_back();
        if (failure.node >= 0) {
          refused[failure.node] = one.status().message();
          fits = false;
        } else if (!failure.pieces.empty()) {
          std::move(failure.pieces.rbegin(), failure.pieces.rend(), std::back_inserter(pieces));
        } else {
          return one.status();
        }
      }
      if (fits) {
        last.set = set;
        continue;
      }
      all_fit = false;
      if (refuses) break;
    }
  }
  result.refusals = std::move(sets.reasons);
  // By their first nodes, too.
  std::vector<CompiledPartition*> partitions(graph.nodes.size());
  for (const std::vector<int32_t>& set : sets.sets) {
    for (CompiledPartition& partition : known[set[0]].partitions) {
      partitions[partition.nodes[0]] = &partition;
    }
  }
  for (CompiledPartition* const partition : partitions) {
    if (partition != nullptr) result.partitions.push_back(std::move(*partition));
  }
  return result;
}

}  // namespace atollrt
