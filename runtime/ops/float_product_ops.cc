// SPDX-License-Identifier: Apache-2.0
//
// CONV_2D and FULLY_CONNECTED of float32 as products of matrices.
#include <utility>

#include "runtime/kernels/float_conv.h"
#include "runtime/ops/apart_executors.h"
#include "runtime/ops/filter_tensors.h"

namespace atollrt {

Executor PrepareFloatConv2D(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_ASSIGN_OR_RETURN(const Conv2DFloatParams params, MakeConv2DFloatParams(graph, node));
  // Groups of few channels are too little for a product.
  constexpr int32_t kMostGroups = 64;
  if (params.shape.groups > kMostGroups) return std::unique_ptr<NodeExecutor>();
  ATOLL_ASSIGN_OR_RETURN(FloatConv conv, FloatConv::Prepare(params, features));
  const size_t worker_bytes = conv.WorkerBytes();
  return Run([conv = std::move(conv)](
                 const NodeIo& io) { conv.Run(io.inputs[0], io.outputs[0], io.scratch, io.pool); },
             [worker_bytes](int threads) { return static_cast<size_t>(threads) * worker_bytes; });
}

}  // namespace atollrt
