// SPDX-License-Identifier: Apache-2.0
//
// Functions of one element: bytes through a table, float32 plainly.
#include <cmath>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// Functions of the standard library, one call for each element. (Those that are faster are linked
// apart: apart_ops.h.)
Executor RunFloats(const Graph& graph, const Node& node, float (*function)(float x)) {
  constexpr int64_t kGrain = 1 << 11;
  return Run([count = graph.Output(node).element_count(), function](const NodeIo& io) {
    ParallelRanges(io.pool, count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float x = LoadLittleEndian<float>(io.inputs[0] + 4 * i);
        StoreLittleEndian<float>(io.outputs[0] + 4 * i, function(x));
      }
    });
  });
}

// Functions that are a loop; `a` and `b` are its parameters.
Executor RunFloatLoop(const Graph& graph, const Node& node, CpuFeatures features,
                      FloatFunction function, float a = 0, float b = 0) {
  return Run([map = ChooseRowLoops(features).float_function(function), a, b,
              count = graph.Output(node).element_count()](const NodeIo& io) {
    ParallelRanges(io.pool, count, kParallelGrain, [&](int64_t begin, int64_t end) {
      map(a, b, io.inputs[0] + 4 * begin, io.outputs[0] + 4 * begin, end - begin);
    });
  });
}

Executor RunClampedFloats(const Graph& graph, const Node& node, CpuFeatures features,
                          Activation activation) {
  ATOLL_ASSIGN_OR_RETURN(const ValueClamp<float> clamp, FusedValueClamp<float>(activation));
  return RunFloatLoop(graph, node, features, FloatFunction::kClamp, clamp.min, clamp.max);
}

float Logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

Executor PrepareFloatFunction(const Graph& graph, const Node& node, CpuFeatures features) {
  switch (node.type) {
    case OpType::kRELU:
      return RunClampedFloats(graph, node, features, Activation::kRelu);
    case OpType::kRELU6:
      return RunClampedFloats(graph, node, features, Activation::kRelu6);
    case OpType::kRELU_N1_TO_1:
      return RunClampedFloats(graph, node, features, Activation::kReluN1To1);
    case OpType::kLEAKY_RELU:
      return RunFloatLoop(graph, node, features, FloatFunction::kLeakyRelu,
                          std::get<LeakyReluOptions>(node.options).alpha);
    case OpType::kHARD_SWISH:
      return RunFloatLoop(graph, node, features, FloatFunction::kHardSwish);
    case OpType::kLOGISTIC:
      return RunFloats(graph, node, Logistic);
    case OpType::kTANH:
      return RunFloats(graph, node, [](float x) { return std::tanh(x); });
    case OpType::kEXP:
      return RunFloats(graph, node, [](float x) { return std::exp(x); });
    case OpType::kSQRT:
      return RunFloatLoop(graph, node, features, FloatFunction::kSqrt);
    case OpType::kRSQRT:
      return RunFloatLoop(graph, node, features, FloatFunction::kRsqrt);
    default:
      return InternalError("%s is no function of one float", node.op_name().c_str());
  }
}

}  // namespace

Executor PrepareTable(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph, node));
  return Run([table, apply = ChooseRowLoops(features).apply_table,
              count = graph.Output(node).element_count()](const NodeIo& io) {
    ParallelRanges(io.pool, count, kParallelGrain, [&](int64_t begin, int64_t end) {
      apply(table.data(), io.inputs[0] + begin, io.outputs[0] + begin, end - begin);
    });
  });
}

Executor PrepareActivation(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  if (input.type != DataType::kFloat32) return PrepareTable(graph, node, features);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  return PrepareFloatFunction(graph, node, features);
}

Executor PrepareRsqrt(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  if (input.type == DataType::kFloat32) {
    ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
    return PrepareFloatFunction(graph, node, features);
  }
  ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph, node));
  const auto rsqrt = [table, apply = ChooseRowLoops(features).apply_table,
                      count = input.element_count(),
                      zero_point = input.zero_point()](const NodeIo& io) -> Status {
    for (int64_t i = 0; i < count; ++i) {
      const int32_t value = static_cast<int8_t>(io.inputs[0][i]);
      if (value < zero_point) {
        return InvalidArgument("element %lld is negative and has no square root",
                               static_cast<long long>(i));
      }
    }
    apply(table.data(), io.inputs[0], io.outputs[0], count);
    return Status();
  };
  return Run(rsqrt);
}

}  // namespace atollrt
