// SPDX-License-Identifier: Apache-2.0
//
// Functions of one element: bytes through a table, float32 plainly.
#include <algorithm>
#include <cmath>

#include "runtime/base/bytes.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

template <typename Function>
Executor RunFloats(const Graph& graph, const Node& node, Function function) {
  const int64_t count = graph.Output(node).element_count();
  return Run([count, function](const NodeIo& io) {
    for (int64_t i = 0; i < count; ++i) {
      const float x = LoadLittleEndian<float>(io.inputs[0] + 4 * i);
      StoreLittleEndian<float>(io.outputs[0] + 4 * i, function(x));
    }
  });
}

Executor RunClampedFloats(const Graph& graph, const Node& node, Activation activation) {
  ATOLL_ASSIGN_OR_RETURN(const ValueClamp<float> clamp, FusedValueClamp<float>(activation));
  return RunFloats(graph, node, clamp);
}

float Logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float HardSwish(float x) { return x * std::min(6.0f, std::max(0.0f, x + 3.0f)) / 6.0f; }

Executor PrepareFloatFunction(const Graph& graph, const Node& node) {
  switch (node.type) {
    case OpType::kRELU:
      return RunClampedFloats(graph, node, Activation::kRelu);
    case OpType::kRELU6:
      return RunClampedFloats(graph, node, Activation::kRelu6);
    case OpType::kRELU_N1_TO_1:
      return RunClampedFloats(graph, node, Activation::kReluN1To1);
    case OpType::kLEAKY_RELU: {
      const float alpha = std::get<LeakyReluOptions>(node.options).alpha;
      return RunFloats(graph, node, [alpha](float x) { return x > 0 ? x : x * alpha; });
    }
    case OpType::kHARD_SWISH:
      return RunFloats(graph, node, HardSwish);
    case OpType::kLOGISTIC:
      return RunFloats(graph, node, Logistic);
    case OpType::kTANH:
      return RunFloats(graph, node, [](float x) { return std::tanh(x); });
    case OpType::kEXP:
      return RunFloats(graph, node, [](float x) { return std::exp(x); });
    case OpType::kSQRT:
      return RunFloats(graph, node, [](float x) { return std::sqrt(x); });
    case OpType::kRSQRT:
      return RunFloats(graph, node, [](float x) { return 1.0f / std::sqrt(x); });
    default:
      return InternalError("%s is no function of one float", node.op_name().c_str());
  }
}

}  // namespace

Executor PrepareTable(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph, node));
  const int64_t count = graph.Output(node).element_count();
  return Run(
      [table, count](const NodeIo& io) { ApplyTable(table, io.inputs[0], io.outputs[0], count); });
}

Executor PrepareActivation(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  if (input.type != DataType::kFloat32) return PrepareTable(graph, node, features);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  return PrepareFloatFunction(graph, node);
}

Executor PrepareRsqrt(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  if (input.type == DataType::kFloat32) {
    ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
    return PrepareFloatFunction(graph, node);
  }
  ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph, node));
  const auto rsqrt = [table, count = input.element_count(),
                      zero_point = input.zero_point()](const NodeIo& io) -> Status {
    for (int64_t i = 0; i < count; ++i) {
      const int32_t value = static_cast<int8_t>(io.inputs[0][i]);
      if (value < zero_point) {
        return InvalidArgument("element %lld is negative and has no square root",
                               static_cast<long long>(i));
      }
    }
    ApplyTable(table, io.inputs[0], io.outputs[0], count);
    return Status();
  };
  return Run(rsqrt);
}

}  // namespace atollrt
