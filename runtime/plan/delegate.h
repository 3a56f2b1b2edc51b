// SPDX-License-Identifier: Apache-2.0
//
// Delegate: whoever takes nodes of a graph off the CPU, in connected sets. With NodeExecutor, all
// that runtime/ knows of acceleration.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/host_memory.h"
#include "runtime/graph/graph.h"
#include "runtime/ops/node_executor.h"

namespace atollrt {

// What is known of a partition once it is compiled, in words of its device (partition_report.h).
struct PartitionReport;

// A connected, acyclic set of nodes that one executor replaces.
struct Partition {
  std::vector<int32_t> nodes;    // ascending
  std::vector<int32_t> inputs;   // tensors that come from outside, constants not among them
  std::vector<int32_t> outputs;  // tensors that are read outside
  std::unique_ptr<NodeExecutor> executor;
  std::shared_ptr<const PartitionReport> report;  // nullptr: nothing is known
};

struct DelegatePlan {
  std::vector<Partition> partitions;
  // For each node of the graph: why it is in no partition; empty for nodes that are in one.
  std::vector<std::string> refusals;
};

// How the partitions of a graph share a device with those of others (driver/device/device_info.h).
struct PlanOptions {
  int32_t priority = 0;        // of their requests; the higher, the sooner
  uint32_t residency_set = 0;  // graphs of one set stay on the device together; 0: this one alone
};

class Delegate {
 public:
  virtual ~Delegate() = default;
  // Whether it runs what Google's compiler made (kEdgeTpuOperator), which nobody else does.
  virtual bool is_coral() const { return false; }
  // Decides what to take of `graph`, which outlives the plan, and makes it ready to run. May be
  // called from several threads.
  virtual Result<DelegatePlan> Plan(const Graph& graph, const PlanOptions& options) = 0;

  // Whether it is another process that reaches memory, and only if it is shared (HostMemory).
  virtual bool wants_shared_memory() const { return false; }
  // Tells of memory in which operands of its partitions will lie, until it is taken back. It stays
  // where it is meanwhile, so whoever reaches memory by himself gets it ready once; others copy. An
  // error says why it cannot be reached and what to do about it; then there is nothing to take
  // back. Not while one of these partitions runs. May be called from several threads.
  virtual Status RegisterMemory(const HostMemory& memory) {
    (void)memory;
    return {};
  }
  virtual void UnregisterMemory(std::span<uint8_t> memory) { (void)memory; }
};

}  // namespace atollrt
