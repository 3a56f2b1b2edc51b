// SPDX-License-Identifier: Apache-2.0
//
// From the element type of a tensor to the C++ type of its elements, or to the loops' name of it.
// Not for use outside this folder.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/kernels/row_loops/row_loops.h"
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

// Nothing for strings and handles.
inline std::optional<Element> ElementOf(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return Element::kInt8;
    case DataType::kUInt8:
      return Element::kUInt8;
    case DataType::kInt16:
      return Element::kInt16;
    case DataType::kInt32:
      return Element::kInt32;
    case DataType::kUInt32:
      return Element::kUInt32;
    case DataType::kInt64:
      return Element::kInt64;
    case DataType::kBool:
      return Element::kBool;
    case DataType::kFloat32:
      return Element::kFloat32;
    case DataType::kString:
    case DataType::kResource:
      break;
  }
  return std::nullopt;
}

}  // namespace atollrt
