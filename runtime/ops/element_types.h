// SPDX-License-Identifier: Apache-2.0
//
// From the element type of a tensor to the C++ type of its elements. Not for use outside this
// folder.
#pragma once

#include <cstdint>

#include "runtime/ops/executors.h"

namespace atollrt {

// function(T()) with T the type of the numbers of a tensor; kUnsupported for what is no number.
template <typename Function>
Executor WithNumberType(DataType type, Function function) {
  switch (type) {
    case DataType::kFloat32:
      return function(float());
    case DataType::kInt8:
      return function(int8_t());
    case DataType::kUInt8:
      return function(uint8_t());
    case DataType::kInt16:
      return function(int16_t());
    case DataType::kInt32:
      return function(int32_t());
    case DataType::kInt64:
      return function(int64_t());
    default:
      return Unsupported("type %s", DataTypeName(type));
  }
}

}  // namespace atollrt
