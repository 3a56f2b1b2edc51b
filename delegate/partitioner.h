// SPDX-License-Identifier: Apache-2.0
//
// Partitioner: Graph -> sets of nodes for the device, and a reason for every node that is in none.
// Sets are connected through tensors; convex: no path leaves one and comes back, so the graph of
// partitions and CPU nodes has no cycle; and maximal: no two neighbouring sets could be one within
// the limits, except in huge tangled graphs, where looking for that would take too long. Sets that
// only move bytes are given up if another one computes and the size of sets is not limited. Pure
// function.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace atollrt {

struct PartitionLimits {
  int64_t memory_bytes = 0;  // on-chip memory of the device
  int32_t max_nodes = 0;     // of a set; 0: any number
  // Per node, not descending along any path; a set has nodes of one stage. Empty: all are of one.
  std::span<const int32_t> stages = {};
};

struct NodeSets {
  std::vector<std::vector<int32_t>> sets;  // ascending node indices
  std::vector<std::string> reasons;        // per node; empty if it is in a set
};

// What takes on-chip memory of a node, for messages: "its output [1, 8]".
struct MemoryNeed {
  int64_t bytes = 0;
  std::string what;
};
// "300 bytes at once (200 for its input [200], 100 for its output [100])", the largest first.
std::string DescribeNeeds(std::vector<MemoryNeed> needs);
// What to do about nodes that do not fit.
inline constexpr char kMemoryAdvice[] =
    "A smaller input, or a device with that much memory, would put it there";

// `refused` holds, per node, a reason for which the caller wants it on the CPU (or "").
NodeSets PartitionGraph(const Graph& graph, const PartitionLimits& limits,
                        const std::vector<std::string>& refused);

// What a set reads from outside, without constants and empty tensors; which of its outputs are read
// outside or are outputs of the graph; and its state, the inputs that it changes, which are
// variable tensors. Each in the order of first use.
struct SetBoundary {
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  std::vector<int32_t> state;

  // What an executable of the set gives back.
  std::vector<int32_t> OutputsAndState() const;
};
class BoundaryFinder {
 public:
  // Borrows the graph. Takes time in proportion to the graph, Find to the set. Not thread-safe.
  explicit BoundaryFinder(const Graph& graph);
  SetBoundary Find(const std::vector<int32_t>& set);

 private:
  enum class Place : uint8_t { kOutside, kInside, kInput };

  const Graph& graph_;
  std::vector<int32_t> readers_;  // per tensor: nodes' inputs, and outputs of the graph
  std::vector<Place> places_;     // per tensor; all kOutside between calls
};

}  // namespace atollrt
