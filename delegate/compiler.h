// SPDX-License-Identifier: Apache-2.0
//
// Compiler: CompileGraph makes of a graph compiled partitions for one device, and a reason for
// every node that is in none; CompileSet makes an Executable of one set of nodes. Pure functions of
// graph and device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "delegate/partitioner.h"
#include "driver/device/device_info.h"
#include "driver/isa/executable.h"
#include "driver/isa/timing.h"
#include "runtime/graph/graph.h"
#include "runtime/plan/partition_report.h"

namespace atollrt {

struct CompiledSet {
  Executable executable;
  // What runs in bands and which parameters are streamed, and why; empty if nothing.
  std::string note;
  // What lies where on chip, and when.
  std::vector<OnChipBlock> memory;
};

// What to do about a set that does not fit (kResourceExhausted): one of the two.
struct CompileFailure {
  std::vector<std::vector<int32_t>> pieces;  // compile these parts of it, in this order
  int32_t node = -1;                         // take this node out of it
};

// What becomes of a set of several nodes that does not fit into on-chip memory.
enum class WhenTooLarge {
  kRefusePeak,  // it loses the node at its peak, which leaves most of it in one piece
  kCut,         // it is cut
};

// Plans on-chip memory (lifetimes of activations, bands of rows where whole ones do not fit,
// resident or streamed parameters), places what the nodes are lowered to (lowering.h) and estimates
// its cycles. The time that this takes grows with the size of the set, not with that of the graph.
//
// `set`, `inputs` and `outputs` are as the partitioner makes them, with the state behind the
// outputs; the executable moves inputs and outputs in this order. kResourceExhausted if the
// activations do not fit on chip even in bands and with all parameters streamed, the program does
// not fit into program memory, or there are more inputs and outputs than an executable may have:
// `failure` then says what to do. Other errors name the node and what is wrong with it.
Result<CompiledSet> CompileSet(const Graph& graph, const std::vector<int32_t>& set,
                               const std::vector<int32_t>& inputs,
                               const std::vector<int32_t>& outputs, const DeviceInfo& device,
                               CompileFailure* failure,
                               WhenTooLarge when_too_large = WhenTooLarge::kRefusePeak);

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

// Partitions, compiles, and, where a set does not fit, gives up a node and partitions anew, or cuts
// the set, until everything fits. The time that this takes grows about as fast as the graph.
// `max_nodes` and `stages` are those of PartitionLimits. Errors are contradictions in the model and
// name the node.
Result<CompiledGraph> CompileGraph(const Graph& graph, const DeviceInfo& device, int32_t max_nodes,
                                   std::span<const int32_t> stages);

// What the device's timing model is made of.
ScheduleOptions ScheduleOptionsOf(const DeviceInfo& device);

}  // namespace atollrt
