// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "driver/isa/executable.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// What an executable calls a type of elements: LayerType is the encoding of its files, with numbers
// of its own. Nothing for types that no device takes.
inline std::optional<LayerType> LayerTypeOf(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return LayerType::kInt8;
    case DataType::kUInt8:
      return LayerType::kUInt8;
    case DataType::kInt16:
      return LayerType::kInt16;
    case DataType::kInt32:
      return LayerType::kInt32;
    case DataType::kFloat32:
      return LayerType::kFloat32;
    default:
      return {};
  }
}

}  // namespace atollrt
