// SPDX-License-Identifier: Apache-2.0
//
// SOFTMAX, L2_NORMALIZATION and reductions of float32 by vectors.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/float_loops/float_loops.h"
#include "runtime/kernels/reduce.h"
#include "runtime/ops/apart_executors.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// Runs rows(FloatRows) for parts of the rows along the last dimension.
Executor RunRows(const Graph& graph, const Node& node, void (*rows)(const FloatRows&), float beta) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  ATOLL_RETURN_IF_ERROR(CheckRows(input));
  const int64_t depth = input.shape.back();
  return Run([=, count = input.element_count() / depth](const NodeIo& io) {
    constexpr int64_t kGrain = 1 << 12;  // elements
    ParallelRanges(io.pool, count, std::max<int64_t>(1, kGrain / depth),
                   [&](int64_t begin, int64_t end) {
                     rows({.x = io.inputs[0] + 4 * begin * depth,
                           .y = io.outputs[0] + 4 * begin * depth,
                           .rows = end - begin,
                           .depth = depth,
                           .beta = beta});
                   });
  });
}

struct Folding {
  FloatFoldFn fold = nullptr;
  FloatFoldRowFn fold_row = nullptr;
};

// As ReduceLoops: returns the end of the input.
const uint8_t* FoldLoops(const Folding& f, std::span<const ReduceLoop> loops, const uint8_t* x,
                         float* folded) {
  if (loops.empty()) {
    f.fold(x, folded, 1);
    return x + 4;
  }
  const ReduceLoop& loop = loops[0];
  if (loops.size() > 1) {
    for (int64_t i = 0; i < loop.count; ++i) {
      x = FoldLoops(f, loops.subspan(1), x, folded + i * loop.out_stride);
    }
    return x;
  }
  if (loop.out_stride == 0) {
    *folded = f.fold_row(x, loop.count, *folded);
  } else {
    f.fold(x, folded, loop.count);
  }
  return x + 4 * loop.count;
}

}  // namespace

Executor PrepareFloatSoftmaxRows(const Graph& graph, const Node& node, CpuFeatures features) {
  return RunRows(graph, node, ChooseFloatLoops(features).softmax,
                 std::get<SoftmaxOptions>(node.options).beta);
}

Executor PrepareFloatNormalization(const Graph& graph, const Node& node, CpuFeatures features) {
  // The other operator has the sentence for it.
  if (std::get<ElementwiseOptions>(node.options).activation != Activation::kNone) {
    return std::unique_ptr<NodeExecutor>();
  }
  return RunRows(graph, node, ChooseFloatLoops(features).l2_normalize, 1);
}

// MEAN, SUM, REDUCE_MAX, REDUCE_MIN.
Executor PrepareFloatReduction(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  ATOLL_RETURN_IF_ERROR(CheckElements(input));
  FloatFold kind = FloatFold::kSum;
  float start = 0;
  if (node.type == OpType::kREDUCE_MAX) {
    kind = FloatFold::kMax;
    start = std::numeric_limits<float>::lowest();
  } else if (node.type == OpType::kREDUCE_MIN) {
    kind = FloatFold::kMin;
    start = std::numeric_limits<float>::max();
  }
  const FloatLoops& loops = ChooseFloatLoops(features);
  ReducePlan plan = MakeReducePlan(input.shape, ReducedAxes(graph, node));
  const float divisor = node.type == OpType::kMEAN ? static_cast<float>(plan.reduced) : 1.0f;
  return Run([start, divisor, folding = Folding{loops.fold(kind), loops.fold_row(kind)},
              plan = std::move(plan)](const NodeIo& io) {
    float* const y = reinterpret_cast<float*>(io.outputs[0]);
    std::fill_n(y, plan.outputs, start);
    (void)FoldLoops(folding, plan.loops, io.inputs[0], y);
    if (divisor != 1) {
      for (int64_t i = 0; i < plan.outputs; ++i) y[i] /= divisor;
    }
  });
}

}  // namespace atollrt
