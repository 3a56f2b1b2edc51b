// SPDX-License-Identifier: Apache-2.0
//
// CombinePairsAvx512Vnni: 64 bytes at a time. (It needs no VNNI, but no CPU without it has a level
// of its own here.)
#include "runtime/kernels/pairs/vector_pairs.h"

namespace atollrt {
namespace {

template <ByteType kType>
struct Lanes : X86Multipliers<Lanes<kType>> {
  static __m512i Set(int32_t x) { return _mm512_set1_epi32(x); }
  static __m512i SetWide(int64_t x) { return _mm512_set1_epi64(x); }
  static __m512i ShiftLeft(__m512i x, __m128i count) { return _mm512_sll_epi32(x, count); }
  static __m512i Add(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
  static __m512i Subtract(__m512i a, __m512i b) { return _mm512_sub_epi32(a, b); }
  static __m512i Multiply(__m512i a, __m512i b) { return _mm512_mullo_epi32(a, b); }
  static __m512i WhereNegative(__m512i x, __m512i y, __m512i z) {
    return _mm512_mask_mov_epi32(z, _mm512_movepi32_mask(x), y);
  }

  struct Operand {
    Operand(ByteType, int32_t zero) : zero_point(Set(zero)) {}
    __m512i zero_point;
  };
  static __m512i Widen(const uint8_t* from, int j, const Operand& operand) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16 * j));
    const __m512i wide =
        kType == ByteType::kInt8 ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    return _mm512_sub_epi32(wide, operand.zero_point);
  }
};

}  // namespace

void CombinePairsAvx512Vnni(const PairParams& params, const uint8_t* x1, const uint8_t* x2,
                            uint8_t* y, int64_t count) {
  if (!IsVectorizable(params)) {
    CombinePairsReference(params, x1, x2, y, count);
  } else if (params.type == ByteType::kInt8) {
    CombinePairs<Lanes<ByteType::kInt8>>(params, x1, x2, y, count);
  } else {
    CombinePairs<Lanes<ByteType::kUInt8>>(params, x1, x2, y, count);
  }
}

}  // namespace atollrt
