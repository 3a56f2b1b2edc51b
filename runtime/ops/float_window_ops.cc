// SPDX-License-Identifier: Apache-2.0
//
// DEPTHWISE_CONV_2D, MAX_POOL_2D and AVERAGE_POOL_2D of float32 by vectors of channels, row by row
// of the output.
#include <algorithm>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/float_loops/float_loops.h"
#include "runtime/ops/apart_executors.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/filter_tensors.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// What differs from row to row of the output.
struct WindowRows {
  int64_t input_h = 1, output_h = 1, batch = 1;
  int64_t kernel_h = 1, stride_h = 1, dilation_h = 1, pad_top = 0;
  FloatWindowRow row;
  void (*run)(const FloatWindowRow& row) = nullptr;
};

// Output row y of all images.
void RunRow(const WindowRows& w, const uint8_t* input, uint8_t* output, int64_t y) {
  FloatWindowRow row = w.row;
  const int64_t top = y % w.output_h * w.stride_h - w.pad_top;
  const int64_t first = top < 0 ? (-top + w.dilation_h - 1) / w.dilation_h : 0;
  const int64_t above_end = w.input_h - top;
  const int64_t inside = above_end <= 0 ? 0 : (above_end - 1) / w.dilation_h + 1;
  const int64_t end = std::min(inside, w.kernel_h);
  row.rows = std::max<int64_t>(end - first, 0);
  const int64_t row_bytes = 4 * row.input_w * row.input_c;
  row.input_row_bytes = w.dilation_h * row_bytes;
  if (row.rows > 0) {
    row.input = input + (y / w.output_h * w.input_h + top + first * w.dilation_h) * row_bytes;
    if (row.weights != nullptr) row.weights += 4 * first * row.kernel_w * row.output_c;
  }
  row.output = output + 4 * y * row.output_w * row.output_c;
  w.run(row);
}

Executor RunWindows(const WindowRows& windows) {
  const FloatWindowRow& row = windows.row;
  const int64_t work = row.output_w * row.output_c * windows.kernel_h * row.kernel_w;
  constexpr int64_t kGrain = 1 << 15;  // products
  const int64_t least = std::max<int64_t>(1, kGrain / std::max<int64_t>(work, 1));
  return Run([windows, least](const NodeIo& io) {
    ParallelRanges(io.pool, windows.batch * windows.output_h, least,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t y = begin; y < end; ++y) {
                       RunRow(windows, io.inputs[0], io.outputs[0], y);
                     }
                   });
  });
}

}  // namespace

Executor PrepareFloatDepthwise(const Graph& graph, const Node& node, CpuFeatures features) {
  return PrepareFloatDepthwiseAs(graph, node, FilterShape(graph, node), features);
}

Executor PrepareFloatDepthwiseAs(const Graph& graph, const Node& node, const ConvShape& s,
                                 CpuFeatures features) {
  const FilterTensors t = FilterTensorsOf(graph, node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(t.input, t.output));
  ATOLL_RETURN_IF_ERROR(CheckWeights(t, DataType::kFloat32));
  ATOLL_RETURN_IF_ERROR(CheckBias(t, {DataType::kFloat32}));
  ATOLL_ASSIGN_OR_RETURN(const ValueClamp<float> clamp,
                         FusedValueClamp<float>(FusedActivation(node)));
  return RunWindows({.input_h = s.input_h,
                     .output_h = s.output_h,
                     .batch = s.batch,
                     .kernel_h = s.kernel_h,
                     .stride_h = s.stride_h,
                     .dilation_h = s.dilation_h,
                     .pad_top = s.pad_top,
                     .row = {.input_w = s.input_w,
                             .input_c = s.input_c,
                             .output_w = s.output_w,
                             .output_c = s.output_c,
                             .kernel_w = s.kernel_w,
                             .stride_w = s.stride_w,
                             .dilation_w = s.dilation_w,
                             .pad_left = s.pad_left,
                             .weights = t.weights.data.data(),
                             .bias = t.bias == nullptr ? nullptr : t.bias->data.data(),
                             .min = clamp.min,
                             .max = clamp.max},
                     .run = ChooseFloatLoops(features).depthwise_row});
}

// MAX_POOL_2D, AVERAGE_POOL_2D.
Executor PrepareFloatPool(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), graph.Output(node)));
  ATOLL_ASSIGN_OR_RETURN(const ValueClamp<float> clamp,
                         FusedValueClamp<float>(FusedActivation(node)));
  const Pool2DParams p = PoolShape(graph, node);
  const FloatLoops& loops = ChooseFloatLoops(features);
  return RunWindows(
      {.input_h = p.input_h,
       .output_h = p.output_h,
       .batch = p.batch,
       .kernel_h = p.kernel_h,
       .stride_h = p.stride_h,
       .pad_top = p.pad_top,
       .row = {.input_w = p.input_w,
               .input_c = p.channels,
               .output_w = p.output_w,
               .output_c = p.channels,
               .kernel_w = p.kernel_w,
               .stride_w = p.stride_w,
               .pad_left = p.pad_left,
               .min = clamp.min,
               .max = clamp.max},
       .run = node.type == OpType::kMAX_POOL_2D ? loops.max_pool_row : loops.average_pool_row});
}

}  // namespace atollrt
