// SPDX-License-Identifier: Apache-2.0
//
// What the files of runtime/ops that bind nodes to kernels share: executors from functions, their
// declarations, and the element type of a tensor as a type of C++ or as the loops name it. Not for
// use outside this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/ops/node_executor.h"

namespace atollrt {

using Executor = Result<std::unique_ptr<NodeExecutor>>;

// What operators.inc lists, as PrepareNode in cpu_ops.h.
#define ATOLL_OP(name, number, version, types, Infer, Prepare) \
  Executor Prepare(const Graph& graph, const Node& node, CpuFeatures features);
#define ATOLL_CUSTOM_OP(name, types, Infer, Prepare, Options) \
  ATOLL_OP(name, 32, 1, types, Infer, Prepare)
#include "runtime/graph/operators.inc"
// Functions of one byte, through MakeNodeTable: what operators of other types, too, turn to.
Executor PrepareTable(const Graph& graph, const Node& node, CpuFeatures features);

// An executor from a function, which returns nothing or a Status; most operators need no more.
// `scratch` is a number of bytes, or a function of the number of threads.
template <typename Function, typename Scratch>
class FunctionExecutor final : public NodeExecutor {
 public:
  FunctionExecutor(Function function, Scratch scratch)
      : function_(std::move(function)), scratch_(std::move(scratch)) {}
  size_t ScratchBytes(int threads) const override {
    if constexpr (std::is_invocable_v<Scratch, int>) {
      return scratch_(threads);
    } else {
      return scratch_;
    }
  }
  Status Invoke(const NodeIo& io) override {
    if constexpr (std::is_void_v<decltype(function_(io))>) {
      function_(io);
      return Status();
    } else {
      return function_(io);
    }
  }

 private:
  const Function function_;
  const Scratch scratch_;
};

template <typename Function, typename Scratch = size_t>
Executor Run(Function function, Scratch scratch = 0) {
  return std::unique_ptr<NodeExecutor>(std::make_unique<FunctionExecutor<Function, Scratch>>(
      std::move(function), std::move(scratch)));
}

// function(T()) with T the type of the numbers of a tensor; kUnsupported for what is no number.
template <typename Function>
Executor WithNumberType(DataType type, Function function) {
  switch (type) {
    case DataType::kFloat32:
      return function(float());
    case DataType::kInt8:
      return function(int8_t());
    case DataType::kUInt8:
      return function(uint8_t());
    case DataType::kInt16:
      return function(int16_t());
    case DataType::kInt32:
      return function(int32_t());
    case DataType::kInt64:
      return function(int64_t());
    default:
      return Unsupported("type %s", DataTypeName(type));
  }
}

// Nothing for float16, strings and handles.
inline std::optional<Element> ElementOf(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return Element::kInt8;
    case DataType::kUInt8:
      return Element::kUInt8;
    case DataType::kInt16:
      return Element::kInt16;
    case DataType::kInt32:
      return Element::kInt32;
    case DataType::kUInt32:
      return Element::kUInt32;
    case DataType::kInt64:
      return Element::kInt64;
    case DataType::kBool:
      return Element::kBool;
    case DataType::kFloat32:
      return Element::kFloat32;
    case DataType::kFloat16:
    case DataType::kString:
    case DataType::kResource:
      break;
  }
  return std::nullopt;
}

}  // namespace atollrt
