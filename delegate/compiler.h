// SPDX-License-Identifier: Apache-2.0
//
// Compiler: a set of nodes -> an Executable for one device. Plans on-chip memory (lifetimes of
// activations, bands of rows where whole ones do not fit, resident or streamed parameters), places
// what the nodes are lowered to (lowering.h) and estimates its cycles. Pure function of graph and
// device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/device.h"
#include "driver/executable.h"
#include "driver/schedule.h"
#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

struct CompiledSet {
  Executable executable;
  // What runs in bands and which parameters are streamed, and why; empty if nothing.
  std::string note;
};

struct CompileFailure {
  // The node to take out of the set when it does not fit on chip (kResourceExhausted), or -1.
  int32_t node = -1;
};

// `set`, `inputs` and `outputs` are as the partitioner makes them, with the state behind the
// outputs; the executable moves inputs and outputs in this order. kResourceExhausted if the
// activations do not fit on chip even in bands and with all parameters streamed, or the program
// does not fit into program memory: `failure` then names the node at the peak, or the one with the
// most instructions. Other errors name the node and what is wrong with it.
Result<CompiledSet> CompileSet(const Graph& graph, const std::vector<int32_t>& set,
                               const std::vector<int32_t>& inputs,
                               const std::vector<int32_t>& outputs, const DeviceInfo& device,
                               CompileFailure* failure);

// What the device's timing model is made of.
ScheduleOptions ScheduleOptionsOf(const DeviceInfo& device);

}  // namespace atollrt
