// SPDX-License-Identifier: Apache-2.0
//
// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.
#include <utility>

#include "runtime/kernels/resize.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// The checks that both share.
Result<ResizeParams> MakeResizeParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckSameQuantization(input, output));
  const ResizeOptions& options = std::get<ResizeOptions>(node.options);
  ResizeParams params{.batch = input.shape[0],
                      .input_h = input.shape[1],
                      .input_w = input.shape[2],
                      .channels = input.shape[3],
                      .output_h = output.shape[1],
                      .output_w = output.shape[2]};
  if (options.align_corners && options.half_pixel_centers) {
    return CorruptModel("align_corners and half_pixel_centers are both set");
  }
  if (options.align_corners) params.mode = ResizeMode::kAlignCorners;
  if (options.half_pixel_centers) params.mode = ResizeMode::kHalfPixelCenters;
  return params;
}

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

class BilinearExecutor final : public NodeExecutor {
 public:
  explicit BilinearExecutor(BilinearResize resize) : resize_(std::move(resize)) {}
  size_t ScratchBytes(int threads) const override { return resize_.ScratchBytes(threads); }
  Status Invoke(const NodeIo& io) override {
    resize_.Run(io.inputs[0], io.outputs[0], io.scratch, io.pool);
    return Status();
  }

 private:
  const BilinearResize resize_;
};

}  // namespace

Executor PrepareResizeBilinear(const Graph& graph, const Node& node, CpuFeatures) {
  const ResizeType type = BilinearType(graph.Input(node, 0)->type);
  ATOLL_ASSIGN_OR_RETURN(const ResizeParams params, MakeResizeParams(graph, node));
  ATOLL_ASSIGN_OR_RETURN(BilinearResize resize, BilinearResize::Prepare(params, type));
  return std::unique_ptr<NodeExecutor>(std::make_unique<BilinearExecutor>(std::move(resize)));
}

Executor PrepareResizeNearest(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const ResizeParams params, MakeResizeParams(graph, node));
  const int64_t cell_bytes =
      params.channels * static_cast<int64_t>(DataTypeSize(graph.Input(node, 0)->type));
  ATOLL_ASSIGN_OR_RETURN(NearestResize resize, NearestResize::Prepare(params, cell_bytes));
  return Run([resize = std::move(resize)](const NodeIo& io) {
    resize.Run(io.inputs[0], io.outputs[0], io.pool);
  });
}

}  // namespace atollrt
