// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu_ops.h"

#include <vector>

#include "runtime/ops/executors.h"

namespace atollrt {
namespace {

struct CpuOp {
  OpType type;
  const char* custom_name;  // of OpType::kCUSTOM
  int32_t max_version;
  PrepareNode prepare;
};

constexpr CpuOp kCpuOps[] = {
#define ATOLL_CPU_OP(name, max_version, Prepare) {OpType::k##name, "", max_version, Prepare},
#define ATOLL_CUSTOM_OP(name, Prepare) {OpType::kCUSTOM, name, 1, Prepare},
#include "runtime/ops/cpu_ops.inc"
#undef ATOLL_CPU_OP
#undef ATOLL_CUSTOM_OP
};

}  // namespace

int32_t NewestKnownVersion(OpType type) {
  for (const CpuOp& op : kCpuOps) {
    if (op.type == type) return op.max_version;
  }
  return 0;
}

Result<std::unique_ptr<NodeExecutor>> PrepareCpuNode(const Graph& graph, const Node& node,
                                                     CpuFeatures features) {
  const CpuOp* op = nullptr;
  for (const CpuOp& candidate : kCpuOps) {
    if (candidate.type == node.type && candidate.custom_name == node.custom_name) op = &candidate;
  }
  if (op == nullptr) {
    return Unsupported("%s: Atoll has no %soperator of this name", Describe(graph, node).c_str(),
                       node.type == OpType::kCUSTOM ? "custom " : "");
  }
  if (node.version > op->max_version) {
    return Unsupported("%s: version %d; the newest known one is %d", Describe(graph, node).c_str(),
                       node.version, op->max_version);
  }
  Executor executor = op->prepare(graph, node, features);
  if (!executor.ok()) {
    return Status(executor.status()).WithContext(Describe(graph, node));
  }
  return executor;
}

Status EvaluateNode(const Graph& graph, const Node& node, std::span<Buffer> outputs) {
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeExecutor> executor,
                         PrepareCpuNode(graph, node, CpuFeatures{}));
  ThreadPool pool(1);
  DeviceUsage usage;
  ATOLL_ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(executor->ScratchBytes(pool.threads())));
  std::vector<const uint8_t*> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Tensor* input = graph.Input(node, i);
    inputs.push_back(input == nullptr ? nullptr : input->data.data());
  }
  std::vector<uint8_t*> results;
  for (Buffer& output : outputs) results.push_back(output.data());
  const std::vector<uint8_t*> state(inputs.size());
  return executor->Invoke({.inputs = inputs,
                           .outputs = results,
                           .state = state,
                           .scratch = scratch.data(),
                           .pool = &pool,
                           .usage = &usage});
}

}  // namespace atollrt
