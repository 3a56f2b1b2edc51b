// SPDX-License-Identifier: Apache-2.0
//
// CONV_2D, FULLY_CONNECTED, TRANSPOSE_CONV and BATCH_MATMUL of float32 as products of matrices.
#include <memory>
#include <utility>

#include "runtime/kernels/float_conv.h"
#include "runtime/kernels/float_matmul.h"
#include "runtime/kernels/transpose_conv.h"
#include "runtime/ops/apart_executors.h"
#include "runtime/ops/filter_tensors.h"
#include "runtime/ops/matmul_shape.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// A convolution of either kind; its activations are input `position`.
template <typename Conv>
Executor RunConv(Conv conv, size_t position) {
  auto kernel = std::make_shared<const Conv>(std::move(conv));
  return Run(
      [kernel, position](const NodeIo& io) {
        kernel->Run(io.inputs[position], io.outputs[0], io.scratch, io.pool);
      },
      [kernel](int threads) { return kernel->ScratchBytes(threads); });
}

}  // namespace

Executor PrepareFloatConv2D(const Graph& graph, const Node& node, CpuFeatures features) {
  return PrepareFloatConv2DAs(graph, node, FilterShape(graph, node), features);
}

Executor PrepareFloatConv2DAs(const Graph& graph, const Node& node, const ConvShape& shape,
                              CpuFeatures features) {
  ATOLL_ASSIGN_OR_RETURN(Conv2DFloatParams params, MakeConv2DFloatParams(graph, node));
  params.shape = shape;
  // Groups of few channels are too little for a product.
  constexpr int32_t kMostGroups = 64;
  if (params.shape.groups > kMostGroups) return std::unique_ptr<NodeExecutor>();
  ATOLL_ASSIGN_OR_RETURN(FloatConv conv, FloatConv::Prepare(params, features));
  return RunConv(std::move(conv), 0);
}

Executor PrepareFloatTransposeConv(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_ASSIGN_OR_RETURN(const Conv2DFloatParams params, MakeConv2DFloatParams(graph, node));
  if (!SplitsWell(params.shape)) return std::unique_ptr<NodeExecutor>();
  using Transposed = TransposeConv<FloatConv, Conv2DFloatParams>;
  ATOLL_ASSIGN_OR_RETURN(Transposed conv, Transposed::Prepare(params, {4, 4, 0}, features));
  return RunConv(std::move(conv), 2);
}

Executor PrepareFloatBatchMatMul(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), *graph.Input(node, 1)));
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), graph.Output(node)));
  const BatchMatMulParams params = MatMulShape(graph, node);
  // Rows of rhs that are read once are added up faster than they are packed.
  constexpr int32_t kFewRows = 3;
  if (params.m <= kFewRows && params.rhs == MatrixLayout::kRowMajor) {
    return std::unique_ptr<NodeExecutor>();
  }
  const FloatMatMul product(params, features);
  return Run(
      [product](const NodeIo& io) {
        product.Run(io.inputs[0], io.inputs[1], reinterpret_cast<float*>(io.outputs[0]), io.scratch,
                    io.pool);
      },
      [product](int threads) { return product.ScratchBytes(threads); });
}

}  // namespace atollrt
