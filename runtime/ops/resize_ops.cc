// SPDX-License-Identifier: Apache-2.0
//
// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.
#include "runtime/kernels/resize.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

Result<ResizeType> BilinearType(const Tensor& tensor) {
  switch (tensor.type) {
    case DataType::kInt8:
      return ResizeType::kInt8;
    case DataType::kUInt8:
      return ResizeType::kUInt8;
    case DataType::kInt16:
      return ResizeType::kInt16;
    case DataType::kFloat32:
      return ResizeType::kFloat32;
    default:
      return Unsupported("input '%s' has type %s, must be int8, uint8, int16 or float32",
                         tensor.name.c_str(), DataTypeName(tensor.type));
  }
}

class BilinearExecutor final : public NodeExecutor {
 public:
  BilinearExecutor(const ResizeParams& params, ResizeType type) : params_(params), type_(type) {}
  size_t ScratchBytes(int threads) const override {
    return BilinearScratchBytes(params_, type_, threads);
  }
  Status Invoke(const NodeIo& io) override {
    ResizeBilinear(params_, type_, WholeImages(params_), io.inputs[0], io.outputs[0], io.scratch,
                   io.pool);
    return Status();
  }

 private:
  const ResizeParams params_;
  const ResizeType type_;
};

}  // namespace

Executor PrepareResizeBilinear(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const ResizeType type, BilinearType(*graph.Input(node, 0)));
  ATOLL_ASSIGN_OR_RETURN(const ResizeParams params, MakeResizeParams(graph, node));
  return std::unique_ptr<NodeExecutor>(std::make_unique<BilinearExecutor>(params, type));
}

Executor PrepareResizeNearest(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const ResizeParams params, MakeResizeParams(graph, node));
  const size_t element_bytes = DataTypeSize(graph.Input(node, 0)->type);
  if (element_bytes == 0) {
    return Unsupported("input has type %s", DataTypeName(graph.Input(node, 0)->type));
  }
  const int64_t cell_bytes = params.channels * static_cast<int64_t>(element_bytes);
  return Run([params, cell_bytes](const NodeIo& io) {
    ResizeNearest(params, cell_bytes, WholeImages(params), io.inputs[0], io.outputs[0], io.pool);
  });
}

}  // namespace atollrt
