// SPDX-License-Identifier: Apache-2.0
#include "camera/vision/tensor_values.h"

#include "atoll/status.h"

namespace atollrt {

std::vector<int32_t> ShapeOf(const AtollTensor* tensor) {
  std::vector<int32_t> shape;
  for (int32_t i = 0; i < AtollTensorNumDims(tensor); ++i) {
    shape.push_back(AtollTensorDim(tensor, i));
  }
  return shape;
}

int64_t CountElements(const std::vector<int32_t>& shape) {
  int64_t count = 1;
  for (const int32_t dim : shape) count *= dim;
  return count;
}

std::string Describe(const AtollTensor* tensor) {
  std::string dims;
  for (const int32_t dim : ShapeOf(tensor)) dims += Format("%s%d", dims.empty() ? "" : ",", dim);
  return Format("'%s', %s [%s]", AtollTensorName(tensor), AtollTypeName(AtollTensorType(tensor)),
                dims.c_str());
}

std::string DescribeOutputs(const AtollInterpreter* interpreter) {
  const int32_t count = AtollInterpreterGetOutputTensorCount(interpreter);
  if (count == 0) return "no output";
  const std::string first = Describe(AtollInterpreterGetOutputTensor(interpreter, 0));
  if (count == 1) return "the output " + first;
  return Format("%d outputs, the first one %s", count, first.c_str());
}

const AtollTensor* OnlyOutput(const AtollInterpreter* interpreter) {
  if (AtollInterpreterGetOutputTensorCount(interpreter) != 1) return nullptr;
  return AtollInterpreterGetOutputTensor(interpreter, 0);
}

bool HoldsRealNumbers(const AtollTensor* tensor) {
  const AtollType type = AtollTensorType(tensor);
  return type == ATOLL_FLOAT32 || type == ATOLL_UINT8 || type == ATOLL_INT8;
}

RealValues::RealValues(const AtollTensor* tensor)
    : data_(AtollTensorConstData(tensor)),
      type_(AtollTensorType(tensor)),
      quantization_(AtollTensorQuantization(tensor)) {
  if (quantization_.scale == 0) quantization_ = {1.0f, 0};
}

std::optional<AtollNodeInfo> FindOperator(const AtollInterpreter* interpreter, const char* op) {
  for (int32_t i = AtollInterpreterGetNodeCount(interpreter); i-- > 0;) {
    AtollNodeInfo node = {};
    if (AtollInterpreterGetNodeInfo(interpreter, i, &node) == ATOLL_OK &&
        std::string_view(node.op) == op) {
      return node;
    }
  }
  return std::nullopt;
}

std::vector<const AtollTensor*> OutputsOf(const AtollInterpreter* interpreter,
                                          const AtollNodeInfo& node, int32_t count) {
  std::vector<const AtollTensor*> tensors;
  if (node.output_count < count) return {};
  for (int32_t k = 0; k < count; ++k) {
    const AtollTensor* tensor = AtollInterpreterGetTensor(interpreter, node.outputs[k]);
    bool is_output = false;
    for (int32_t i = 0; i < AtollInterpreterGetOutputTensorCount(interpreter); ++i) {
      is_output = is_output || AtollInterpreterGetOutputTensor(interpreter, i) == tensor;
    }
    if (!is_output) return {};
    tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace atollrt
