// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "atoll/status.h"

namespace atollrt {

inline std::vector<int32_t> ShapeOf(const AtollTensor* tensor) {
  std::vector<int32_t> shape;
  for (int32_t i = 0; i < AtollTensorNumDims(tensor); ++i) {
    shape.push_back(AtollTensorDim(tensor, i));
  }
  return shape;
}

// "'scores', float32 [1,1001]"
inline std::string Describe(const AtollTensor* tensor) {
  std::string dims;
  for (const int32_t dim : ShapeOf(tensor)) dims += Format("%s%d", dims.empty() ? "" : ",", dim);
  return Format("'%s', %s [%s]", AtollTensorName(tensor), AtollTypeName(AtollTensorType(tensor)),
                dims.c_str());
}

}  // namespace atollrt
