// SPDX-License-Identifier: Apache-2.0
//
// StepPlan: what running a graph takes, step by step, before any memory is given to it. It starts
// with a step for each node on the CPU and each partition of the delegate's, and every function
// below makes another plan of it, with the same outputs. Pure functions, but for the delegate's
// and the kernels' preparation of weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/plan/delegate.h"

namespace atollrt {

// How a node on the CPU is computed that is a product of bytes and weights.
struct NodeKernel {
  const char* name = "";       // "GemmAvx2"
  int32_t channels = 0;        // of the output
  int32_t float_channels = 0;  // of these, that become bytes by a float multiply-add
  bool uses_packed_weights = false;
};

// Where a node runs. `partition` is -1 on the CPU.
struct NodePlacement {
  int32_t partition = -1;
  std::string reason;  // why the delegate did not take it; empty without a delegate
  NodeKernel kernel;
};

// One executor and the tensors that it reads and writes.
struct Step {
  std::unique_ptr<NodeExecutor> owned;  // CPU nodes; partitions own theirs
  NodeExecutor* executor = nullptr;
  int32_t node = 0;  // the (first) node
  int32_t partition = -1;
  std::vector<int32_t> inputs;  // -1: absent
  std::vector<int32_t> outputs;
  bool is_small = false;  // not worth a second thread
  // Steps that this one replaces, each with operands of its own. Together they give the same bytes,
  // and those of the tensors in between, too.
  std::vector<Step> members;
};

struct StepPlan {
  // Every tensor between steps keeps its bytes until the next run.
  bool keeps_all_tensors = false;
  // The arena is memory that other processes can map.
  bool shares_arena = false;
  std::vector<Step> steps;
  std::vector<Partition> partitions;      // whose executors steps borrow
  std::vector<NodePlacement> placements;  // of each node
  // Bytes of Tensor::packed_weights that kernels use where they lie.
  int64_t used_packed_weight_bytes = 0;
};

// What prepares kernels, and what they are for.
struct PlanHost {
  CpuFeatures features = kBaseline;
  ThreadPool* pool = nullptr;  // nullptr: the calling thread alone
  // Hears of the bytes of large constants that a kernel has prepared for itself, as soon as it has,
  // on any thread of the pool; may be empty. So a file and what is made of it need not be in memory
  // at one time. They may be read again.
  std::function<void(std::span<const uint8_t> bytes)> weights_read{};
};

// One step for each partition that `delegate` (nullptr: none) makes of the graph, at the place of
// its first node, and for each other node, bound to its kernel for `host`. `graph` outlives the
// plan; `model_bytes` is the size of its file, beside which prepared weights must not be out of
// proportion (kResourceExhausted).
Result<StepPlan> PlanNodes(const Graph& graph, size_t model_bytes, Delegate* delegate,
                           const PlanOptions& options, const PlanHost& host);
// Every step behind those that write what it reads.
Result<StepPlan> InOrder(const Graph& graph, StepPlan plan);
// A PAD whose only reader is a convolution becomes the padding of that.
Result<StepPlan> FoldPads(const Graph& graph, StepPlan plan, CpuFeatures features);
// An ADD, SUB or MUL right behind a convolution, of which it is the only reader, becomes the tail
// of that.
Result<StepPlan> AttachTails(const Graph& graph, StepPlan plan, CpuFeatures features);
// Convolutions that hand on large tensors run a few lines at a time (line_chain.h).
StepPlan ChainLines(const Graph& graph, StepPlan plan);

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

// All of them, in this order; if all tensors are kept, the first two alone.
Result<StepPlan> PlanSteps(const Graph& graph, size_t model_bytes, Delegate* delegate,
                           const PlanOptions& options, const PlanHost& host,
                           bool keeps_all_tensors = false);

}  // namespace atollrt
