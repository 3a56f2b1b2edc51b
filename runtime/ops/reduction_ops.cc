// SPDX-License-Identifier: Apache-2.0
//
// Reductions, and what relates every element to its row: softmax and normalizations.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/kernels/arg_reduce.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/reduce.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

Executor PrepareFloatSoftmax(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  ATOLL_RETURN_IF_ERROR(CheckRows(input));
  const int32_t depth = input.shape.back();
  const int64_t rows = input.element_count() / depth;
  const float beta = std::get<SoftmaxOptions>(node.options).beta;
  return Run(
      [=](const NodeIo& io) { SoftmaxFloat(rows, depth, beta, io.inputs[0], io.outputs[0]); });
}

// MEAN and SUM of bytes.
Executor PrepareByteSum(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_ASSIGN_OR_RETURN(const ByteSumParams params, MakeByteSumParams(graph, node));
  ReducePlan plan = MakeReducePlan(graph.Input(node, 0)->shape, ReducedAxes(graph, node));
  return Run([params, plan = std::move(plan), &loops = ChooseRowLoops(features)](const NodeIo& io) {
    ByteSum(params, plan.loops, loops, io.inputs[0], io.outputs[0]);
  });
}

template <typename T>
T* As(uint8_t* aligned) {
  return reinterpret_cast<T*>(aligned);
}

// MEAN and SUM of int16, quantized like bytes.
Executor PrepareInt16Sum(const Tensor& input, const Tensor& output, OpType type, ReducePlan plan) {
  ATOLL_ASSIGN_OR_RETURN(const Multiplier multiplier,
                         MakeSumMultiplier(type, input, output, plan.reduced));
  const size_t scratch_bytes = static_cast<size_t>(plan.outputs) * sizeof(int64_t);
  const int64_t zeros = input.zero_point() * plan.reduced;
  const uint32_t zero_point = static_cast<uint32_t>(output.zero_point());
  const auto sum = [=, plan = std::move(plan)](const NodeIo& io) {
    int64_t* sums = As<int64_t>(io.scratch);
    Reduce<int16_t>(plan, io.inputs[0], int64_t{0}, sums,
                    [](int64_t a, int64_t x) { return a + x; });
    for (int64_t i = 0; i < plan.outputs; ++i) {
      const int32_t steps = static_cast<int32_t>(sums[i] - zeros);
      const uint32_t scaled =
          static_cast<uint32_t>(MultiplyByQuantizedMultiplier(steps, multiplier));
      const int32_t y = Clamp(static_cast<int32_t>(scaled + zero_point), INT16_MIN, INT16_MAX);
      As<int16_t>(io.outputs[0])[i] = static_cast<int16_t>(y);
    }
  };
  return Run(sum, scratch_bytes);
}

// MEAN and SUM of numbers that are not quantized. Integers wrap; their means truncate.
template <typename T, typename Accumulator>
Executor PrepareNumberSum(OpType type, ReducePlan plan) {
  const size_t scratch_bytes = static_cast<size_t>(plan.outputs) * sizeof(Accumulator);
  const T divisor = type == OpType::kMEAN ? static_cast<T>(plan.reduced) : T{1};
  const auto sum = [divisor, plan = std::move(plan)](const NodeIo& io) {
    Accumulator* sums = As<Accumulator>(io.scratch);
    Reduce<T>(plan, io.inputs[0], Accumulator{0}, sums,
              [](Accumulator a, T x) { return a + static_cast<Accumulator>(x); });
    for (int64_t i = 0; i < plan.outputs; ++i) {
      // Unsigned sums wrap, and are read as signed to be divided.
      using Signed = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
      As<T>(io.outputs[0])[i] = static_cast<T>(static_cast<Signed>(sums[i]) / divisor);
    }
  };
  return Run(sum, scratch_bytes);
}

// REDUCE_MAX and REDUCE_MIN.
Executor PrepareExtreme(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckExtremes(graph, node));
  const Tensor& input = *graph.Input(node, 0);
  const Extreme which = node.type == OpType::kREDUCE_MAX ? Extreme::kMax : Extreme::kMin;
  ReducePlan plan = MakeReducePlan(input.shape, ReducedAxes(graph, node));
  return WithNumberType(input.type, [&](auto number) {
    return Run([which, plan = std::move(plan)](const NodeIo& io) {
      ReduceExtreme(which, plan.loops, plan.outputs, io.inputs[0],
                    As<decltype(number)>(io.outputs[0]));
    });
  });
}

// Rows of float32, possibly unaligned.
struct FloatRow {
  const uint8_t* input;
  uint8_t* output;
  int32_t depth;

  float at(int32_t i) const { return LoadLittleEndian<float>(input + 4 * int64_t{i}); }
  void set(int32_t i, float value) const { StoreLittleEndian(output + 4 * int64_t{i}, value); }
};

// function(FloatRow) for every row along the last dimension.
template <typename Function>
Executor RunFloatRows(const Graph& graph, const Node& node, Function function) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  ATOLL_RETURN_IF_ERROR(CheckRows(input));
  const int32_t depth = input.shape.back();
  return Run([function, depth, count = input.element_count()](const NodeIo& io) {
    for (int64_t i = 0; i < count; i += depth) {
      function(FloatRow{io.inputs[0] + 4 * i, io.outputs[0] + 4 * i, depth});
    }
  });
}

void LogSoftmaxRow(const FloatRow& row) {
  float max = row.at(0);
  for (int32_t i = 1; i < row.depth; ++i) max = std::max(max, row.at(i));
  float sum = 0;
  for (int32_t i = 0; i < row.depth; ++i) sum += std::exp(row.at(i) - max);
  const float log_sum = std::log(sum);
  for (int32_t i = 0; i < row.depth; ++i) row.set(i, row.at(i) - max - log_sum);
}

void L2NormalizationRow(const FloatRow& row) {
  float sum = 0;
  for (int32_t i = 0; i < row.depth; ++i) sum += row.at(i) * row.at(i);
  constexpr float kEpsilon = 1e-6f;
  const float norm = std::max(std::sqrt(sum), kEpsilon);
  for (int32_t i = 0; i < row.depth; ++i) row.set(i, row.at(i) / norm);
}

}  // namespace

Executor PrepareSoftmax(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  if (input.type == DataType::kFloat32) return PrepareFloatSoftmax(graph, node);
  ATOLL_ASSIGN_OR_RETURN(const SoftmaxParams params, MakeSoftmaxParams(graph, node));
  SoftmaxTable table;
  UpdateSoftmaxTable(params, &table);
  return Run([params, table, &loops = ChooseRowLoops(features)](const NodeIo& io) {
    Softmax(params, table, loops, io.inputs[0], io.outputs[0], io.pool);
  });
}

// MEAN, SUM, REDUCE_MAX, REDUCE_MIN.
Executor PrepareReduction(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (node.type == OpType::kREDUCE_MAX || node.type == OpType::kREDUCE_MIN) {
    return PrepareExtreme(graph, node);
  }
  if (IsByteType(input.type)) return PrepareByteSum(graph, node, features);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckElements(input));
  ReducePlan plan = MakeReducePlan(input.shape, ReducedAxes(graph, node));
  switch (input.type) {
    case DataType::kFloat32:
      return PrepareNumberSum<float, float>(node.type, std::move(plan));
    case DataType::kInt16:
      return PrepareInt16Sum(input, output, node.type, std::move(plan));
    case DataType::kInt32:
      return PrepareNumberSum<int32_t, uint64_t>(node.type, std::move(plan));
    case DataType::kInt64:
      return PrepareNumberSum<int64_t, uint64_t>(node.type, std::move(plan));
    default:
      return Unsupported("type %s", DataTypeName(input.type));
  }
}

// ARG_MAX, ARG_MIN.
Executor PrepareArgReduction(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const DataType type = graph.Output(node).type;
  if (type != DataType::kInt32 && type != DataType::kInt64) {
    return CorruptModel("output has type %s, must be int32 or int64", DataTypeName(type));
  }
  const int32_t axis =
      NormalizeAxis(ConstantIntegers(*graph.Input(node, 1))[0], input.shape.size());
  ArgReduceParams params{.which = node.type == OpType::kARG_MAX ? Extreme::kMax : Extreme::kMin,
                         .input = *ElementOf(input.type),  // a number: operators.inc
                         .output = *ElementOf(type)};
  for (int32_t i = 0; i < static_cast<int32_t>(input.shape.size()); ++i) {
    (i < axis ? params.outer : i == axis ? params.size : params.inner) *= input.shape[i];
  }
  return Run([params, &loops = ChooseRowLoops(features)](const NodeIo& io) {
    ArgReduce(params, loops, io.inputs[0], io.outputs[0], io.pool);
  });
}

Executor PrepareLogSoftmax(const Graph& graph, const Node& node, CpuFeatures) {
  if (graph.Input(node, 0)->type == DataType::kFloat32) {
    return RunFloatRows(graph, node, LogSoftmaxRow);
  }
  ATOLL_ASSIGN_OR_RETURN(const LogSoftmaxParams params, MakeLogSoftmaxParams(graph, node));
  return Run([params](const NodeIo& io) { LogSoftmax(params, io.inputs[0], io.outputs[0]); });
}

Executor PrepareL2Normalization(const Graph& graph, const Node& node, CpuFeatures) {
  if (graph.Input(node, 0)->type == DataType::kFloat32) {
    if (std::get<ElementwiseOptions>(node.options).activation != Activation::kNone) {
      return Unsupported("a fused activation");
    }
    return RunFloatRows(graph, node, L2NormalizationRow);
  }
  ATOLL_ASSIGN_OR_RETURN(const L2NormalizationParams params,
                         MakeL2NormalizationParams(graph, node));
  return Run([params](const NodeIo& io) { L2Normalization(params, io.inputs[0], io.outputs[0]); });
}

}  // namespace atollrt
