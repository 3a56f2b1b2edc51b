// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on NEON, for inclusion by its ISA files only. Both operands are signed bytes, so
// int8 activations are read as they are and uint8 ones moved by -128.
#pragma once

#include "runtime/kernels/gemm/tiles.h"

namespace atollrt {
namespace {

inline const int8_t* Signed(const uint8_t* bytes) { return reinterpret_cast<const int8_t*>(bytes); }

template <typename Tiles>
constexpr GemmKernel NeonGemm(const char* name, int32_t k_group, bool narrow_weights) {
  return {.name = name,
          .tile_rows = Tiles::kRows,
          .panel_columns = Tiles::kColumns,
          .k_group = k_group,
          .lhs_element_bytes = 1,
          .narrow_weights = narrow_weights,
          .int8_lhs_offset = 0,
          .uint8_lhs_offset = -128,
          .copy_lhs = CopyBytes<ByteType::kUInt8>,
          .run = Run<Tiles>};
}

}  // namespace
}  // namespace atollrt
