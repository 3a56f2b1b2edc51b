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
      {OpType::kDEQUANTIZE, "", 0, kFloat16, PrepareHalfDequantize},
      {OpType::kEXP, "", 0, kFloat32, PrepareFloatMap},
      {OpType::kLOGISTIC, "", 0, kFloat32, PrepareFloatMap},
      {OpType::kTANH, "", 0, kFloat32, PrepareFloatMap},
      {OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM, "", 0, kFloat32, PrepareFloatLstm},
  });
}
constexpr auto kApartOps = MakeApartOps();

}  // namespace

std::span<const CpuOp> ApartOps() { return kApartOps; }

}  // namespace atollrt
