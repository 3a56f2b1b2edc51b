// SPDX-License-Identifier: Apache-2.0
//
// Sets of element types, as the list of operators has them (graph/operators.inc).
#pragma once

#include <cstdint>
#include <initializer_list>

#include "runtime/graph/graph.h"

namespace atollrt {

class TypeSet {
 public:
  constexpr TypeSet(std::initializer_list<DataType> types) {
    for (const DataType type : types) bits_ |= Bit(type);
  }
  constexpr bool Contains(DataType type) const { return (bits_ & Bit(type)) != 0; }
  friend constexpr TypeSet operator|(TypeSet a, TypeSet b) {
    a.bits_ |= b.bits_;
    return a;
  }

 private:
  // The loader lets only known types through, and their numbers are below 32.
  static constexpr uint32_t Bit(DataType type) {
    const auto number = static_cast<uint8_t>(type);
    return number < 32 ? uint32_t{1} << number : 0;
  }
  uint32_t bits_ = 0;
};

// Apart, because enumerations use the same names.
namespace types {

inline constexpr TypeSet kBytes{DataType::kInt8, DataType::kUInt8};
inline constexpr TypeSet kInt8{DataType::kInt8};
inline constexpr TypeSet kUInt8{DataType::kUInt8};
inline constexpr TypeSet kInt16{DataType::kInt16};
inline constexpr TypeSet kInt32{DataType::kInt32};
inline constexpr TypeSet kInt64{DataType::kInt64};
inline constexpr TypeSet kFloat32{DataType::kFloat32};
inline constexpr TypeSet kFloat16{DataType::kFloat16};
inline constexpr TypeSet kBool{DataType::kBool};
inline constexpr TypeSet kNumbers = kBytes | kInt16 | kInt32 | kInt64 | kFloat32;
// Whatever has a fixed size and is no handle.
inline constexpr TypeSet kPlain = kNumbers | kBool | TypeSet{DataType::kUInt32};
inline constexpr TypeSet kAll = kPlain | TypeSet{DataType::kString, DataType::kResource};
inline constexpr TypeSet kNone{};

}  // namespace types

}  // namespace atollrt
