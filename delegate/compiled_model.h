// SPDX-License-Identifier: Apache-2.0
//
// Compiled models: .tflite files in which each partition is a custom operator that holds its
// executable and names the subgraph that it was made from (runtime/graph/compiled_op.h), with
// packed weights of CPU nodes. They load without a compile step on the device that they were made
// for, without packing on such a CPU, and run everywhere. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "delegate/partitioner.h"
#include "driver/device/device_info.h"
#include "driver/isa/executable.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/cpu_features.h"

namespace atollrt {

struct PartitionExecutable {
  std::vector<int32_t> nodes;  // ascending
  SetBoundary boundary;
  const Executable* executable = nullptr;
};

// The file of `graphs` and `extras`. The first graph has `partitions`, maybe none, as operators of
// their own; weights of its other nodes are packed for a CPU with `features`. kUnsupported if it
// would exceed 2 GiB.
Result<std::vector<uint8_t>> WriteCompiledModel(std::span<const Graph> graphs,
                                                const ModelExtras& extras,
                                                const std::vector<PartitionExecutable>& partitions,
                                                CpuFeatures features);

// The executable that came with a model as Graph::compiled[partition], checked against the nodes
// that it stands for. kUnsupported, with what to do, if it is for another version of the
// instruction set.
Result<Executable> ReadCompiledPartition(const Graph& graph, size_t partition,
                                         std::span<const int32_t> nodes,
                                         const SetBoundary& boundary);

}  // namespace atollrt
