// SPDX-License-Identifier: Apache-2.0
//
// The functions that bind nodes to the kernels that are linked apart (apart_ops.h), as PrepareNode
// in cpu_ops.h. An empty pointer: the operator of CpuOps() shall run the node. Not for use outside
// this folder.
#pragma once

#include "runtime/kernels/conv_shape.h"
#include "runtime/ops/executors.h"

namespace atollrt {

#define ATOLL_OP_APART(name, number, version, types, Infer, Prepare) \
  Executor Prepare(const Graph& graph, const Node& node, CpuFeatures features);
#include "runtime/graph/operators.inc"
// CONV_2D and FULLY_CONNECTED.
Executor PrepareFloatConv2D(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareFloatTransposeConv(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareFloatBatchMatMul(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareFloatDepthwise(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareFloatPool(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareFloatNormalization(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareFloatReduction(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareFloatSoftmaxRows(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareFloatLstm(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareInt16Product(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareInt16Rectifier(const Graph& graph, const Node& node, CpuFeatures features);
// Of int16 or float32.
Executor PrepareApartSigmoid(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareApartSoftmax(const Graph& graph, const Node& node, CpuFeatures features);
Executor PrepareHalfDequantize(const Graph& graph, const Node& node, CpuFeatures features);

// With the geometry `shape` in the place of the node's own.
Executor PrepareFloatConv2DAs(const Graph& graph, const Node& node, const ConvShape& shape,
                              CpuFeatures features);
Executor PrepareFloatDepthwiseAs(const Graph& graph, const Node& node, const ConvShape& shape,
                                 CpuFeatures features);

}  // namespace atollrt
