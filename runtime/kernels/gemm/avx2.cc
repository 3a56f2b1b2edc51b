// SPDX-License-Identifier: Apache-2.0
//
// GemmAvx2: VPMADDWD multiplies pairs of int16 and adds the two products: exact, as activations
// lie within [-128, 255] and weights within [-128, 127]. Activations are widened once, when copied;
// weights stay bytes, to keep twice as many in the caches, and are widened when loaded. Where most
// weights are small, GemmAvx2Bytes is faster.
#include "runtime/kernels/gemm/tiles256.h"

namespace atollrt {
namespace {

template <ByteType kType>
void CopyRows(const CopyLhsArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint8_t* source = args.source + r * args.source_stride;
    uint8_t* target = args.target + r * args.target_stride;
    for (int64_t i = 0; i < args.count; i += 16) {
      const __m128i bytes = reinterpret_cast<__m128i>(Load16Before(source + i, args.source_end));
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(target + 2 * i),
          kType == ByteType::kInt8 ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes));
    }
  }
}

void CopyLhs(const CopyLhsArgs& args) {
  (args.type == ByteType::kInt8 ? CopyRows<ByteType::kInt8> : CopyRows<ByteType::kUInt8>)(args);
}

struct WordProducts {
  static constexpr int kRhsBytes = 16;
  static constexpr int64_t kMostFusedGroups = 64;
  static __m256i LoadRhs(const uint8_t* from) {
    return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static __m256i Add(__m256i sums, __m256i a, __m256i b) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
  }
};

}  // namespace

const GemmKernel GemmAvx2 = {
    .name = "GemmAvx2",
    .tile_rows = Tiles256<WordProducts>::kRows,
    .panel_columns = Tiles256<WordProducts>::kColumns,
    .k_group = kGroupBytes256 / 2,
    .lhs_element_bytes = 2,
    .for_small_weights = &GemmAvx2Bytes,
    .fit = FitFloatColumnAvx2,
    .copy_lhs = CopyLhs,
    .run = Run<Tiles256<WordProducts>>,
};

}  // namespace atollrt
