// SPDX-License-Identifier: Apache-2.0
//
// Matrix products with VPDPBUSD on 256-bit registers, for inclusion by ISA files only. `Encoding`
// is a class with Dpbusd(sums, u, s), that instruction in AVX or AVX-512 encoding: it multiplies
// unsigned by signed bytes, four at a time, and adds the sum of the four products to an int32 that
// wraps: exact. int8 activations are therefore moved by 128.
#pragma once

#include <immintrin.h>

#include "runtime/kernels/gemm/tiles256.h"

namespace atollrt {
namespace {

inline void CopyLhs(const CopyLhsArgs& args) {
  const __m128i flip = _mm_set1_epi8(args.type == ByteType::kInt8 ? -128 : 0);
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint8_t* source = args.source + r * args.source_stride;
    uint8_t* target = args.target + r * args.target_stride;
    for (int64_t i = 0; i < args.count; i += 16) {
      const __m128i bytes = Load16Before(source + i, args.source_end);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), _mm_xor_si128(bytes, flip));
    }
  }
}

template <typename Encoding>
struct ByteProducts {
  static constexpr int kRhsBytes = 32;
  static __m256i LoadRhs(const uint8_t* from) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }
  static __m256i Add(__m256i sums, __m256i a, __m256i b) { return Encoding::Dpbusd(sums, a, b); }
};

template <typename Encoding>
constexpr GemmKernel Vnni256Gemm(const char* name) {
  return {.name = name,
          .tile_rows = kTileRows,
          .panel_columns = kPanelColumns,
          .k_group = kGroupBytes,
          .lhs_element_bytes = 1,
          .int8_lhs_offset = 128,
          .copy_lhs = CopyLhs,
          .run = Run<ByteProducts<Encoding>>};
}

}  // namespace
}  // namespace atollrt
