// SPDX-License-Identifier: Apache-2.0
//
// Reductions and the softmax family.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/graph/shape_inference.h"
#include "runtime/kernels/reduce.h"
#include "runtime/kernels/softmax_float.h"
#include "runtime/ops/element_types.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// Copies `input` with the reduced axes moved in front of the others.
void GatherReduced(const Shape& shape, const std::vector<int32_t>& order, size_t depth,
                   const std::vector<int64_t>& strides, const uint8_t* input, uint8_t** out) {
  if (depth == order.size()) {
    *(*out)++ = *input;
    return;
  }
  for (int32_t i = 0; i < shape[order[depth]]; ++i) {
    GatherReduced(shape, order, depth + 1, strides, input + i * strides[order[depth]], out);
  }
}

Executor PrepareFloatSoftmax(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  if (input.shape.empty() || input.shape.back() < 1) {
    return CorruptModel("input has shape %s", ShapeString(input.shape).c_str());
  }
  const int32_t depth = input.shape.back();
  const int64_t rows = input.element_count() / depth;
  const float beta = std::get<SoftmaxOptions>(node.options).beta;
  return Run(
      [=](const NodeIo& io) { SoftmaxFloat(rows, depth, beta, io.inputs[0], io.outputs[0]); });
}

// MEAN and SUM of bytes: rows of channels, summed by the kernel of the pooling kind.
Executor PrepareByteSum(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(MeanPlan plan, MakeMeanPlan(graph, node));
  const MeanParams params = plan.params;
  if (plan.contiguous) {
    return Run([params](const NodeIo& io) { Mean(params, io.inputs[0], io.outputs[0]); });
  }
  const Shape shape = graph.Input(node, 0)->shape;
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  std::vector<int32_t> order = plan.reduced;
  for (int32_t i = 0; i < static_cast<int32_t>(shape.size()); ++i) {
    if (!std::binary_search(plan.reduced.begin(), plan.reduced.end(), i)) order.push_back(i);
  }
  const auto gather_and_mean = [params, shape, strides, order](const NodeIo& io) {
    uint8_t* out = io.scratch;
    GatherReduced(shape, order, 0, strides, io.inputs[0], &out);
    Mean(params, io.scratch, io.outputs[0]);
  };
  return Run(gather_and_mean, static_cast<size_t>(graph.Input(node, 0)->element_count()));
}

// Which axes of the input a node reduces.
std::vector<bool> ReducedAxes(const Graph& graph, const Node& node) {
  const Tensor& axes = *graph.Input(node, 1);
  std::vector<bool> reduce(graph.Input(node, 0)->shape.size());
  if (axes.element_count() == 0) return reduce;
  for (const int64_t axis : ConstantIntegers(axes)) {
    reduce[NormalizeAxis(axis, reduce.size())] = true;
  }
  return reduce;
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

template <typename T>
Executor PrepareExtreme(OpType type, ReducePlan plan) {
  using Limits = std::numeric_limits<T>;
  if (type == OpType::kREDUCE_MAX) {
    return Run([plan = std::move(plan)](const NodeIo& io) {
      Reduce<T>(plan, io.inputs[0], Limits::lowest(), As<T>(io.outputs[0]),
                [](T a, T x) { return a < x ? x : a; });
    });
  }
  return Run([plan = std::move(plan)](const NodeIo& io) {
    Reduce<T>(plan, io.inputs[0], Limits::max(), As<T>(io.outputs[0]),
              [](T a, T x) { return x < a ? x : a; });
  });
}

template <typename In, typename Out>
Executor PrepareArg(OpType type, const AxisShape& shape) {
  if (type == OpType::kARG_MAX) {
    return Run([shape](const NodeIo& io) {
      ArgReduce<In>(shape, io.inputs[0], As<Out>(io.outputs[0]), [](In x, In y) { return x > y; });
    });
  }
  return Run([shape](const NodeIo& io) {
    ArgReduce<In>(shape, io.inputs[0], As<Out>(io.outputs[0]), [](In x, In y) { return x < y; });
  });
}

}  // namespace

Executor PrepareSoftmax(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  if (input.type == DataType::kFloat32) return PrepareFloatSoftmax(graph, node);
  ATOLL_ASSIGN_OR_RETURN(const SoftmaxParams params, MakeSoftmaxParams(graph, node));
  if (graph.Output(node).type == DataType::kInt16) {
    return Run([params](const NodeIo& io) {
      SoftmaxToInt16(params, io.inputs[0], reinterpret_cast<int16_t*>(io.outputs[0]));
    });
  }
  return Run([params](const NodeIo& io) { Softmax(params, io.inputs[0], io.outputs[0]); });
}

// MEAN, SUM, REDUCE_MAX, REDUCE_MIN.
Executor PrepareReduction(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  const bool is_sum = node.type == OpType::kMEAN || node.type == OpType::kSUM;
  if (is_sum && IsByteType(input.type)) return PrepareByteSum(graph, node);
  if (input.type != output.type) {
    return CorruptModel("input has type %s, output %s", DataTypeName(input.type),
                        DataTypeName(output.type));
  }
  if (input.element_count() < 1) {
    return CorruptModel("input has shape %s", ShapeString(input.shape).c_str());
  }
  ReducePlan plan = MakeReducePlan(input.shape, ReducedAxes(graph, node));
  if (is_sum) {
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
  if (input.scale() != output.scale() || input.zero_point() != output.zero_point()) {
    return CorruptModel("input has scale %g and zero point %d, output %g and %d; must be the same",
                        static_cast<double>(input.scale()), input.zero_point(),
                        static_cast<double>(output.scale()), output.zero_point());
  }
  return WithNumberType(input.type, [&](auto number) {
    return PrepareExtreme<decltype(number)>(node.type, std::move(plan));
  });
}

// ARG_MAX, ARG_MIN.
Executor PrepareArgReduction(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const DataType type = graph.Output(node).type;
  if (type != DataType::kInt32 && type != DataType::kInt64) {
    return CorruptModel("output has type %s, must be int32 or int64", DataTypeName(type));
  }
  const int32_t axis =
      NormalizeAxis(ConstantIntegers(*graph.Input(node, 1))[0], input.shape.size());
  AxisShape shape;
  for (int32_t i = 0; i < static_cast<int32_t>(input.shape.size()); ++i) {
    (i < axis ? shape.outer : i == axis ? shape.size : shape.inner) *= input.shape[i];
  }
  return WithNumberType(input.type, [&](auto number) {
    using In = decltype(number);
    return type == DataType::kInt32 ? PrepareArg<In, int32_t>(node.type, shape)
                                    : PrepareArg<In, int64_t>(node.type, shape);
  });
}

}  // namespace atollrt
