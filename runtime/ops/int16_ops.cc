// SPDX-License-Identifier: Apache-2.0
//
// What 16x8 networks have beside filters, sums and moves: products and functions of int16.
#include <algorithm>
#include <cmath>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/int16_functions.h"
#include "runtime/kernels/quantization/fixed_point.h"
#include "runtime/ops/apart_executors.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

constexpr int64_t kBytes = sizeof(int16_t);

Status CheckInt16Unary(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("input", input));
  return CheckQuantizedInt16("output", output);
}

// map(x, y, count) for parts of the tensor.
template <typename Map>
Executor RunMap(const Graph& graph, const Node& node, const Map& map) {
  constexpr int64_t kGrain = 1 << 12;
  return Run([map, count = graph.Output(node).element_count()](const NodeIo& io) {
    ParallelRanges(io.pool, count, kGrain, [&](int64_t begin, int64_t end) {
      map(io.inputs[0] + begin * kBytes, io.outputs[0] + begin * kBytes, end - begin);
    });
  });
}

Executor PrepareSigmoid16(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckInt16Unary(graph, node));
  const Tensor& output = graph.Output(node);
  const bool is_tanh = node.type == OpType::kTANH;
  // TensorFlow Lite has a tolerance for one of them.
  int32_t exponent = 0;
  const bool is_near = is_tanh && IsPowerOfTwo(output.scale(), &exponent) && exponent == -15;
  if (!is_near) ATOLL_RETURN_IF_ERROR(CheckOutputFormat(output, 1.0f / 32768, 0));
  const float scale = graph.Input(node, 0)->scale();
  if (scale > kMaxSigmoidScale) {
    return Unsupported("input '%s' has scale %g, of int16 it can be at most %g",
                       graph.Input(node, 0)->name.c_str(), static_cast<double>(scale),
                       static_cast<double>(kMaxSigmoidScale));
  }
  return RunMap(graph, node,
                [function = is_tanh ? Tanh16 : Logistic16,
                 scale = is_tanh ? MakeTanhScale(scale) : MakeLogisticScale(scale)](
                    const uint8_t* x, uint8_t* y, int64_t count) { function(scale, x, y, count); });
}

Executor PrepareSoftmax16(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckInt16Unary(graph, node));
  const bool is_near = std::abs(graph.Output(node).scale() * 32768.0f - 1.0f) <= 1e-3f;
  if (!is_near) ATOLL_RETURN_IF_ERROR(CheckOutputFormat(graph.Output(node), 1.0f / 32768, 0));
  ATOLL_RETURN_IF_ERROR(CheckRows(input));
  const float beta = std::get<SoftmaxOptions>(node.options).beta;
  if (!(beta > 0)) return CorruptModel("beta is %g, must be positive", static_cast<double>(beta));
  const float scale = input.scale() * beta;
  const int32_t depth = input.shape.back();
  if (!(scale <= Softmax16::kMaxScale) || depth > Softmax16::kMaxDepth) {
    return Unsupported(
        "rows of %d int16 with scale %g times beta %g; at most %d and %g have a defined result",
        depth, static_cast<double>(input.scale()), static_cast<double>(beta), Softmax16::kMaxDepth,
        static_cast<double>(Softmax16::kMaxScale));
  }
  return Run(
      [softmax = Softmax16(scale), rows = input.element_count() / depth, depth](const NodeIo& io) {
        constexpr int64_t kGrain = 1 << 11;  // elements
        ParallelRanges(
            io.pool, rows, std::max<int64_t>(1, kGrain / depth), [&](int64_t begin, int64_t end) {
              const int64_t offset = begin * depth * kBytes;
              softmax.Run(io.inputs[0] + offset, io.outputs[0] + offset, end - begin, depth);
            });
      });
}

}  // namespace

Executor PrepareInt16Product(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& a = *graph.Input(node, 0);
  const Tensor& b = *graph.Input(node, 1);
  const Tensor& output = graph.Output(node);
  if (a.quantization.scales.empty()) return Unsupported("int16 that is not quantized");
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("input 0", a));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("input 1", b));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("output", output));
  ATOLL_ASSIGN_OR_RETURN(const ClampRange clamp,
                         FusedClamp(output, std::get<ElementwiseOptions>(node.options).activation));
  const Multiplier multiplier =
      QuantizeMultiplier(static_cast<double>(a.scale() * b.scale() / output.scale()));
  return Run([clamp, multiplier, broadcast = MakeBroadcast(a.shape, b.shape)](const NodeIo& io) {
    CombineElements<int16_t, int16_t>(
        broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool, [&](int32_t x1, int32_t x2) {
          return static_cast<int16_t>(
              Clamp(MultiplyByQuantizedMultiplier(x1 * x2, multiplier), clamp.min, clamp.max));
        });
  });
}

// RELU, RELU6, LEAKY_RELU.
Executor PrepareInt16Rectifier(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_RETURN_IF_ERROR(CheckInt16Unary(graph, node));
  const Tensor& output = graph.Output(node);
  const float scale = graph.Input(node, 0)->scale();
  Activation activation = Activation::kNone;
  float alpha = 1;
  if (node.type == OpType::kRELU) {
    activation = Activation::kRelu;
  } else if (node.type == OpType::kRELU6) {
    activation = Activation::kRelu6;
  } else {
    alpha = std::get<LeakyReluOptions>(node.options).alpha;
  }
  ATOLL_ASSIGN_OR_RETURN(const ClampRange clamp, FusedClamp(output, activation));
  const Multiplier positive = QuantizeMultiplier(static_cast<double>(scale / output.scale()));
  const float slope = scale * alpha / output.scale();
  const Multiplier negative = QuantizeMultiplier(static_cast<double>(std::abs(slope)));
  return RunMap(graph, node, [=](const uint8_t* x, uint8_t* y, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int32_t value = LoadLittleEndian<int16_t>(x + i * kBytes);
      int32_t scaled = MultiplyByQuantizedMultiplier(value, value < 0 ? negative : positive);
      if (value < 0 && slope < 0) scaled = -scaled;
      StoreLittleEndian<int16_t>(y + i * kBytes,
                                 static_cast<int16_t>(Clamp(scaled, clamp.min, clamp.max)));
    }
  });
}

// LOGISTIC and TANH.
Executor PrepareApartSigmoid(const Graph& graph, const Node& node, CpuFeatures features) {
  if (graph.Input(node, 0)->type == DataType::kInt16) return PrepareSigmoid16(graph, node);
  return PrepareFloatMap(graph, node, features);
}

Executor PrepareApartSoftmax(const Graph& graph, const Node& node, CpuFeatures features) {
  if (graph.Input(node, 0)->type == DataType::kInt16) return PrepareSoftmax16(graph, node);
  return PrepareFloatSoftmaxRows(graph, node, features);
}

}  // namespace atollrt
