// SPDX-License-Identifier: Apache-2.0
//
// BATCH_MATMUL.
#include "runtime/kernels/batch_matmul.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/matmul_shape.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

MatrixLayout LayoutOf(bool transposed) {
  return transposed ? MatrixLayout::kColumnMajor : MatrixLayout::kRowMajor;
}

Status SetQuantization(const Tensor& lhs, const Tensor& rhs, const Tensor& output,
                       BatchMatMulParams* params) {
  const double real =
      static_cast<double>(lhs.scale() * rhs.scale()) / static_cast<double>(output.scale());
  if (lhs.type == DataType::kInt16) {
    ATOLL_ASSIGN_OR_RETURN(params->multiplier, WideMultiplier(real));
    return Status();
  }
  params->multiplier = QuantizeMultiplier(real);
  params->lhs_zero_point = lhs.zero_point();
  params->rhs_zero_point = rhs.zero_point();
  params->output_zero_point = output.zero_point();
  return Status();
}

}  // namespace

BatchMatMulParams MatMulShape(const Graph& graph, const Node& node) {
  const Shape& lhs = graph.Input(node, 0)->shape;
  const Shape& rhs = graph.Input(node, 1)->shape;
  const Shape& output = graph.Output(node).shape;
  const BatchMatMulOptions& options = std::get<BatchMatMulOptions>(node.options);
  BatchMatMulParams params;
  params.lhs = LayoutOf(options.transpose_lhs);
  params.rhs = LayoutOf(options.transpose_rhs);
  params.m = output[output.size() - 2];
  params.n = output.back();
  params.k = options.transpose_lhs ? lhs[lhs.size() - 2] : lhs.back();
  int64_t lhs_stride = 1;
  int64_t rhs_stride = 1;
  for (size_t i = 3; i <= output.size(); ++i) {  // dimensions counted from the last
    const int32_t lhs_count = i <= lhs.size() ? lhs[lhs.size() - i] : 1;
    const int32_t rhs_count = i <= rhs.size() ? rhs[rhs.size() - i] : 1;
    params.batches[5 - i] = {.count = output[output.size() - i],
                             .lhs_stride = lhs_count == 1 ? 0 : lhs_stride,
                             .rhs_stride = rhs_count == 1 ? 0 : rhs_stride};
    lhs_stride *= lhs_count;
    rhs_stride *= rhs_count;
  }
  return params;
}

Executor PrepareBatchMatMul(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& lhs = *graph.Input(node, 0);
  const Tensor& rhs = *graph.Input(node, 1);
  const Tensor& output = graph.Output(node);
  BatchMatMulType type = BatchMatMulType::kFloat32;
  if (lhs.type == DataType::kInt8) type = BatchMatMulType::kInt8;
  if (lhs.type == DataType::kInt16) type = BatchMatMulType::kInt16;
  BatchMatMulParams params = MatMulShape(graph, node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(lhs, rhs));
  ATOLL_RETURN_IF_ERROR(CheckSameType(lhs, output));
  if (type != BatchMatMulType::kFloat32) {
    for (const Tensor* tensor : {&lhs, &rhs, &output}) {
      ATOLL_RETURN_IF_ERROR(type == BatchMatMulType::kInt8
                                ? CheckQuantizedByte("operand", *tensor)
                                : CheckQuantizedInt16("operand", *tensor));
    }
    ATOLL_RETURN_IF_ERROR(SetQuantization(lhs, rhs, output, &params));
  }
  return Run(
      [params, type](const NodeIo& io) {
        BatchMatMul(params, type, io.inputs[0], io.inputs[1], io.outputs[0], io.scratch, io.pool);
      },
      BatchMatMulScratchBytes(params, type));
}

}  // namespace atollrt
