// SPDX-License-Identifier: Apache-2.0
//
// Operators that Google's compiler made for a Coral Edge TPU: each is a partition of one node, with
// its executable inside of it. Pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/coral/executable.h"
#include "driver/device/device_info.h"
#include "runtime/graph/graph.h"
#include "runtime/plan/partition_report.h"

namespace atollrt {

struct CoralPartition {
  int32_t node = 0;
  // Its inputs and outputs are those of the node, in order.
  std::shared_ptr<const AnyExecutable> executable;
  PartitionReport report;  // what is known without running it
};
// All of them for `device`, in the order of the nodes, and for each node that is none the reason.
// Takes hostile bytes. kCorruptModel if an executable is damaged or does not fit the node's
// tensors; kUnsupported as ReadCoralPackage, and for types of tensors that the driver cannot give
// to the chip.
Result<std::vector<CoralPartition>> ReadCoralPartitions(const Graph& graph,
                                                        const DeviceInfo& device,
                                                        std::vector<std::string>* refusals);

}  // namespace atollrt
