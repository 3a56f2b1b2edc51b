// SPDX-License-Identifier: Apache-2.0
//
// What the files of runtime/ops that bind nodes to kernels share: executors from functions, and
// the declarations of these files. Not for use outside this folder.
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

// Those that operators.inc lists, as PrepareNode in cpu_ops.h.
#define ATOLL_OP(name, number, version, types, Infer, Prepare) \
  Executor Prepare(const Graph& graph, const Node& node, CpuFeatures features);
#define ATOLL_CUSTOM_OP(name, types, Infer, Prepare, Options) \
  ATOLL_OP(name, 32, 1, types, Infer, Prepare)
#include "runtime/graph/operators.inc"
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
