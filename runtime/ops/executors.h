// SPDX-License-Identifier: Apache-2.0
//
// What the files of runtime/ops that bind nodes to kernels share: executors from functions, and
// the declarations that cpu_ops.inc lists. Not for use outside this folder.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/ops/node_executor.h"

namespace atollrt {

using Executor = Result<std::unique_ptr<NodeExecutor>>;

// Checks types and quantization of a node (its shapes are right already: InferShapes), computes
// everything that Invoke will need and binds it. Errors do not name the node; the caller adds it.
using PrepareNode = Executor (*)(const Graph& graph, const Node& node, CpuFeatures features);

#define ATOLL_CPU_OP(name, max_version, types, Prepare) \
  Executor Prepare(const Graph& graph, const Node& node, CpuFeatures features);
#define ATOLL_CUSTOM_OP(name, types, Prepare) \
  Executor Prepare(const Graph& graph, const Node& node, CpuFeatures features);
#include "runtime/ops/cpu_ops.inc"
#undef ATOLL_CPU_OP
#undef ATOLL_CUSTOM_OP
// Functions of one byte, through MakeNodeTable: what operators of other types, too, turn to.
Executor PrepareTable(const Graph& graph, const Node& node, CpuFeatures features);

// An executor from a function, which returns nothing or a Status; most operators need no more.
template <typename Function>
class FunctionExecutor final : public NodeExecutor {
 public:
  FunctionExecutor(size_t scratch_bytes, Function function)
      : scratch_bytes_(scratch_bytes), function_(std::move(function)) {}
  size_t ScratchBytes(int) const override { return scratch_bytes_; }
  Status Invoke(const NodeIo& io) override {
    if constexpr (std::is_void_v<decltype(function_(io))>) {
      function_(io);
      return Status();
    } else {
      return function_(io);
    }
  }

 private:
  const size_t scratch_bytes_;
  const Function function_;
};

template <typename Function>
Executor Run(Function function, size_t scratch_bytes = 0) {
  return std::unique_ptr<NodeExecutor>(
      std::make_unique<FunctionExecutor<Function>>(scratch_bytes, std::move(function)));
}

}  // namespace atollrt
