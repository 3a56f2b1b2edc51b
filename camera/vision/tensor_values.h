// SPDX-License-Identifier: Apache-2.0
//
// What the readers share: finding tensors, describing them, and reading them as real numbers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "atoll/runtime.h"

namespace atollrt {

std::vector<int32_t> ShapeOf(const AtollTensor* tensor);
int64_t CountElements(const std::vector<int32_t>& shape);
// "'scores', float32 [1,1001]"
std::string Describe(const AtollTensor* tensor);
// "4 outputs, the first one 'boxes', float32 [1,10,4]"
std::string DescribeOutputs(const AtollInterpreter* interpreter);

// The only output, or nullptr if there is not exactly one.
const AtollTensor* OnlyOutput(const AtollInterpreter* interpreter);

// Whether Floats gives that many.
inline bool IsFloat(const AtollTensor* tensor, int64_t elements) {
  return AtollTensorType(tensor) == ATOLL_FLOAT32 && CountElements(ShapeOf(tensor)) == elements;
}
inline const float* Floats(const AtollTensor* tensor) {
  return static_cast<const float*>(AtollTensorConstData(tensor));
}

// Whether ReadReal can read it: float32, uint8 or int8.
bool HoldsRealNumbers(const AtollTensor* tensor);

// The elements of such a tensor as real numbers; without a scale, integers as they are.
class RealValues {
 public:
  explicit RealValues(const AtollTensor* tensor);
  float operator[](size_t index) const {
    switch (type_) {
      case ATOLL_INT8:
        return Real(static_cast<const int8_t*>(data_)[index]);
      case ATOLL_UINT8:
        return Real(static_cast<const uint8_t*>(data_)[index]);
      default:
        return static_cast<const float*>(data_)[index];
    }
  }

 private:
  float Real(int stored) const {
    return quantization_.scale * static_cast<float>(stored - quantization_.zero_point);
  }
  const void* data_;
  AtollType type_;
  AtollQuantization quantization_;
};

// The last node of this operator, if the model has one.
std::optional<AtollNodeInfo> FindOperator(const AtollInterpreter* interpreter, const char* op);

// The first `count` tensors that `node` writes, in the operator's own order; empty if it has fewer,
// or if one of them is no output of the model.
std::vector<const AtollTensor*> OutputsOf(const AtollInterpreter* interpreter,
                                          const AtollNodeInfo& node, int32_t count);

}  // namespace atollrt
