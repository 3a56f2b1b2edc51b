// SPDX-License-Identifier: Apache-2.0
//
// Compiler: a set of nodes -> an Executable for one device. Plans on-chip memory (lifetimes of
// activations, bands of rows where whole ones do not fit, resident or streamed parameters), places
// what the nodes are lowered to (lowering.h) and estimates its cycles. Pure function of graph and
// device. Its time grows with the size of the set, not with that of the graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/device/device_info.h"
#include "driver/isa/executable.h"
#include "driver/isa/schedule.h"
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
  // To compile these sets instead, which together are the set, in the order in which they run.
  std::vector<std::vector<int32_t>> pieces;
  // To take a node out of the set.
  int32_t node = -1;
};

// What becomes of a set of several nodes that does not fit into on-chip memory.
enum class WhenTooLarge {
  kRefusePeak,  // it loses the node at its peak, which leaves most of it in one piece
  kCut,         // it is cut
};

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

// What the device's timing model is made of.
ScheduleOptions ScheduleOptionsOf(const DeviceInfo& device);

}  // namespace atollrt
