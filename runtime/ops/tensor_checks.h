// SPDX-License-Identifier: Apache-2.0
//
// Checks of tensors that the operators share. Errors name the tensor and the numbers, not the
// node; the caller adds it. Pure functions, thread-safe.
#pragma once

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/lookup_table.h"
#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// `type` is a byte type.
ByteType ToByteType(DataType type);
ByteFormat FormatOf(const Tensor& tensor);

// A byte tensor with exactly one, positive scale.
Status CheckQuantizedByte(const char* role, const Tensor& tensor);
// A tensor of int16 with exactly one, positive scale, and zero point 0.
Status CheckQuantizedInt16(const char* role, const Tensor& tensor);
Status CheckSameType(const Tensor& a, const Tensor& b);
// Rows along the last dimension, which has elements.
Status CheckRows(const Tensor& input);
// At least one element.
Status CheckElements(const Tensor& input);
// An output whose scale and zero point are fixed.
Status CheckOutputFormat(const Tensor& output, float scale, int32_t zero_point);
// Equal scales and zero points.
Status CheckSameQuantization(const Tensor& a, const Tensor& b);

}  // namespace atollrt
