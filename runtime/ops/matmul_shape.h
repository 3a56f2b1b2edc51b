// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/graph/graph.h"
#include "runtime/kernels/batch_matmul.h"

namespace atollrt {

// Sizes, layouts and batches of a BATCH_MATMUL that InferBatchMatMul has checked; quantization is
// left to the caller. (In matmul_ops.cc.)
BatchMatMulParams MatMulShape(const Graph& graph, const Node& node);

}  // namespace atollrt
