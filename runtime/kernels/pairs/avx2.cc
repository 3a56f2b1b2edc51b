// SPDX-License-Identifier: Apache-2.0
//
// CombinePairsAvx2: 32 bytes at a time, and one code for both types.
#include "runtime/kernels/pairs/vector_pairs.h"

namespace atollrt {
namespace {

struct Lanes : X86Multipliers<Lanes> {
  static __m256i Set(int32_t x) { return _mm256_set1_epi32(x); }
  static __m256i SetWide(int64_t x) { return _mm256_set1_epi64x(x); }
  static __m256i ShiftLeft(__m256i x, __m128i count) { return _mm256_sll_epi32(x, count); }
  static __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
  static __m256i Subtract(__m256i a, __m256i b) { return _mm256_sub_epi32(a, b); }
  static __m256i Multiply(__m256i a, __m256i b) { return _mm256_mullo_epi32(a, b); }
  static __m256i WhereNegative(__m256i x, __m256i y, __m256i z) {
    return _mm256_blendv_epi8(z, y, _mm256_srai_epi32(x, 31));
  }

  struct Operand {
    Operand(ByteType type, int32_t zero)
        : bits(Set(type == ByteType::kInt8 ? -1 : 0xff)), zero_point(Set(zero)) {}
    __m256i bits;  // of a uint8, none are kept but its own
    __m256i zero_point;
  };
  static __m256i Widen(const uint8_t* from, int j, const Operand& operand) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8 * j));
    const __m256i value = _mm256_and_si256(_mm256_cvtepi8_epi32(bytes), operand.bits);
    return _mm256_sub_epi32(value, operand.zero_point);
  }
};

}  // namespace

void CombinePairsAvx2(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                      int64_t count) {
  (IsVectorizable(params) ? CombinePairs<Lanes> : CombinePairsReference)(params, x1, x2, y, count);
}

}  // namespace atollrt
