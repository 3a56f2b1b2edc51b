// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/tensor_checks.h"

namespace atollrt {

ByteType ToByteType(DataType type) {
  return type == DataType::kUInt8 ? ByteType::kUInt8 : ByteType::kInt8;
}

ByteFormat FormatOf(const Tensor& tensor) {
  return {ToByteType(tensor.type), tensor.scale(), tensor.zero_point()};
}

Status CheckQuantizedByte(const char* role, const Tensor& tensor) {
  if (!IsByteType(tensor.type)) {
    return Unsupported("%s '%s' has type %s, must be int8 or uint8", role, tensor.name.c_str(),
                       DataTypeName(tensor.type));
  }
  if (tensor.quantization.scales.size() != 1 || !(tensor.scale() > 0)) {
    return CorruptModel("%s '%s' has %zu scales, must have one that is positive", role,
                        tensor.name.c_str(), tensor.quantization.scales.size());
  }
  return Status();
}

Status CheckQuantizedInt16(const char* role, const Tensor& tensor) {
  if (tensor.type != DataType::kInt16) {
    return Unsupported("%s '%s' has type %s, must be int16", role, tensor.name.c_str(),
                       DataTypeName(tensor.type));
  }
  if (tensor.quantization.scales.size() != 1 || !(tensor.scale() > 0) || tensor.zero_point() != 0) {
    return CorruptModel(
        "%s '%s' has %zu scales and zero point %d, must have one positive scale and zero point 0",
        role, tensor.name.c_str(), tensor.quantization.scales.size(), tensor.zero_point());
  }
  return Status();
}

Status CheckSameType(const Tensor& a, const Tensor& b) {
  if (a.type == b.type) return Status();
  return CorruptModel("'%s' is %s but '%s' is %s; they must be the same", a.name.c_str(),
                      DataTypeName(a.type), b.name.c_str(), DataTypeName(b.type));
}

Status CheckRows(const Tensor& input) {
  if (!input.shape.empty() && input.shape.back() >= 1) return Status();
  return CorruptModel("input has shape %s", ShapeString(input.shape).c_str());
}

Status CheckElements(const Tensor& input) {
  if (input.element_count() >= 1) return Status();
  return CorruptModel("input has shape %s", ShapeString(input.shape).c_str());
}

Status CheckOutputFormat(const Tensor& output, float scale, int32_t zero_point) {
  if (output.scale() == scale && output.zero_point() == zero_point) return Status();
  return CorruptModel("output '%s' has scale %g and zero point %d, must have %g and %d",
                      output.name.c_str(), static_cast<double>(output.scale()), output.zero_point(),
                      static_cast<double>(scale), zero_point);
}

Status CheckSameQuantization(const Tensor& a, const Tensor& b) {
  if (a.scale() == b.scale() && a.zero_point() == b.zero_point()) return Status();
  return CorruptModel(
      "'%s' (scale %g, zero point %d) and '%s' (scale %g, zero point %d) must be "
      "quantized alike",
      a.name.c_str(), static_cast<double>(a.scale()), a.zero_point(), b.name.c_str(),
      static_cast<double>(b.scale()), b.zero_point());
}

}  // namespace atollrt
