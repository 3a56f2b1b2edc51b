// SPDX-License-Identifier: Apache-2.0
//
// What libatoll-core has in place of the operators that are linked apart: none.
#include "runtime/ops/apart_ops.h"
#include "runtime/shapes/shape_rules.h"

namespace atollrt {

std::span<const CpuOp> ApartOps() { return {}; }

Result<std::unique_ptr<NodeExecutor>> PrepareUnpaddedFloatFilter(const Graph&, const Node&,
                                                                 const ConvShape&, CpuFeatures) {
  return std::unique_ptr<NodeExecutor>();
}

ShapeRule ApartShapeRule(OpType) { return nullptr; }

}  // namespace atollrt
