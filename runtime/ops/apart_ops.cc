// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/apart_ops.h"

#include <array>

#include "runtime/ops/apart_executors.h"

namespace atollrt {
namespace {

constexpr auto MakeApartOps() {
  using namespace types;
  return std::to_array<CpuOp>({
#define ATOLL_OP_APART(name, number, version, data, Infer, Prepare) \
  {OpType::k##name, "", version, data, Prepare},
#include "runtime/graph/operators.inc"
      // More types, and faster kernels, of those in CpuOps(), whose versions count.
      {OpType::kAVERAGE_POOL_2D, "", 0, kFloat32, PrepareFloatPool},
      {OpType::kBATCH_MATMUL, "", 0, kFloat32, PrepareFloatBatchMatMul},
      {OpType::kCONV_2D, "", 0, kFloat32, PrepareFloatConv2D},
      {OpType::kDEPTHWISE_CONV_2D, "", 0, kFloat32, PrepareFloatDepthwise},
      {OpType::kDEQUANTIZE, "", 0, kFloat16, PrepareHalfDequantize},
      {OpType::kEXP, "", 0, kFloat32, PrepareFloatMap},
      {OpType::kFULLY_CONNECTED, "", 0, kFloat32, PrepareFloatConv2D},
      {OpType::kL2_NORMALIZATION, "", 0, kFloat32, PrepareFloatNormalization},
      {OpType::kLEAKY_RELU, "", 0, kInt16, PrepareInt16Rectifier},
      {OpType::kLOGISTIC, "", 0, kInt16 | kFloat32, PrepareApartSigmoid},
      {OpType::kMAX_POOL_2D, "", 0, kFloat32, PrepareFloatPool},
      {OpType::kMEAN, "", 0, kFloat32, PrepareFloatReduction},
      {OpType::kMUL, "", 0, kInt16, PrepareInt16Product},
      {OpType::kREDUCE_MAX, "", 0, kFloat32, PrepareFloatReduction},
      {OpType::kREDUCE_MIN, "", 0, kFloat32, PrepareFloatReduction},
      {OpType::kRELU, "", 0, kInt16, PrepareInt16Rectifier},
      {OpType::kRELU6, "", 0, kInt16, PrepareInt16Rectifier},
      {OpType::kSOFTMAX, "", 0, kInt16 | kFloat32, PrepareApartSoftmax},
      {OpType::kSUM, "", 0, kFloat32, PrepareFloatReduction},
      {OpType::kTANH, "", 0, kInt16 | kFloat32, PrepareApartSigmoid},
      {OpType::kTRANSPOSE_CONV, "", 0, kFloat32, PrepareFloatTransposeConv},
      {OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM, "", 0, kFloat32, PrepareFloatLstm},
  });
}
constexpr auto kApartOps = MakeApartOps();

}  // namespace

std::span<const CpuOp> ApartOps() { return kApartOps; }

Executor PrepareUnpaddedFloatFilter(const Graph& graph, const Node& node, const ConvShape& shape,
                                    CpuFeatures features) {
  switch (node.type) {
    case OpType::kCONV_2D:
      return PrepareFloatConv2DAs(graph, node, shape, features);
    case OpType::kDEPTHWISE_CONV_2D:
      return PrepareFloatDepthwiseAs(graph, node, shape, features);
    default:
      return std::unique_ptr<NodeExecutor>();
  }
}

}  // namespace atollrt
