// SPDX-License-Identifier: Apache-2.0
//
// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.
#include "runtime/kernels/resize.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

ResizeType BilinearType(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return ResizeType::kInt8;
    case DataType::kUInt8:
      return ResizeType::kUInt8;
    case DataType::kInt16:
      return ResizeType::kInt16;
    default:
      return ResizeType::kFloat32;
  }
}

}  // namespace

Executor PrepareResizeBilinear(const Graph& graph, const Node& node, CpuFeatures features) {
  const ResizeType type = BilinearType(graph.Input(node, 0)->type);
  ATOLL_ASSIGN_OR_RETURN(const ResizeParams params, MakeResizeParams(graph, node));
  return Run(
      [params, type, &loops = ChooseRowLoops(features)](const NodeIo& io) {
        ResizeBilinear(params, type, loops, WholeImages(params), io.inputs[0], io.outputs[0],
                       io.scratch, io.pool);
      },
      [params, type](int threads) { return BilinearScratchBytes(params, type, threads); });
}

Executor PrepareResizeNearest(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const ResizeParams params, MakeResizeParams(graph, node));
  const int64_t cell_bytes =
      params.channels * static_cast<int64_t>(DataTypeSize(graph.Input(node, 0)->type));
  return Run([params, cell_bytes](const NodeIo& io) {
    ResizeNearest(params, cell_bytes, WholeImages(params), io.inputs[0], io.outputs[0], io.pool);
  });
}

}  // namespace atollrt
