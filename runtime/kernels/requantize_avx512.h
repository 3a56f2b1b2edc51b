// SPDX-License-Identifier: Apache-2.0
//
// The output stage (output_columns.h) for AVX-512, for inclusion by kernels' ISA files only:
// everything is in an unnamed namespace, so no copy of it can end up in code for other CPUs.
// requantize_avx2.h derives the arithmetic.
#pragma once

#include <immintrin.h>

#include "runtime/kernels/output_columns.h"

namespace atollrt {
namespace {

// What 16 neighbouring columns need, kept in registers while the rows go by.
struct Scale512 {
  __m512i multiplier, multiplier_odd;  // the second serves the odd lanes, moved to even places
  __m512i rounding_even, rounding_odd;
  __m512i shift;
  __m512d scale_low, scale_high;
};

inline Scale512 FixedPointScale(__m512i multiplier, __m512i shift) {
  Scale512 s = {};
  s.multiplier = multiplier;
  s.multiplier_odd = _mm512_srli_epi64(multiplier, 32);
  s.shift = shift;
  const __m512i half =
      _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_sub_epi32(shift, _mm512_set1_epi32(1)));
  const __m512i low = _mm512_set1_epi64(int64_t{1} << 31);
  s.rounding_even = _mm512_or_si512(_mm512_slli_epi64(half, 32), low);
  s.rounding_odd = _mm512_or_si512(_mm512_maskz_mov_epi32(0xAAAA, half), low);
  return s;
}

template <RequantizeMode kMode>
inline Scale512 LoadScale(const OutputColumns& columns, int32_t column) {
  if constexpr (kMode == RequantizeMode::kDouble) {
    Scale512 s = {};
    s.scale_low = _mm512_load_pd(columns.scale + column);
    s.scale_high = _mm512_load_pd(columns.scale + column + 8);
    return s;
  } else {
    return FixedPointScale(_mm512_load_si512(columns.multiplier + column),
                           _mm512_load_si512(columns.shift + column));
  }
}

// 16 accumulators to 16 rescaled values, before the zero point and the clamp.
template <RequantizeMode kMode>
inline __m512i Rescale(__m512i x, const Scale512& s) {
  if constexpr (kMode == RequantizeMode::kDouble) {
    const auto round = [](__m512d v) {
      // Truncation and its remainder are exact, hence so is this rounding of halves away from 0.
      const __m512d whole = _mm512_roundscale_pd(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
      const __m512d rest = _mm512_sub_pd(v, whole);
      const __m512d one = _mm512_set1_pd(1.0);
      const __mmask8 up = _mm512_cmp_pd_mask(rest, _mm512_set1_pd(0.5), _CMP_GE_OQ);
      const __mmask8 down = _mm512_cmp_pd_mask(rest, _mm512_set1_pd(-0.5), _CMP_LE_OQ);
      __m512d rounded = _mm512_mask_add_pd(whole, up, whole, one);
      rounded = _mm512_mask_sub_pd(rounded, down, rounded, one);
      // Beyond any clamp, within int32.
      rounded = _mm512_max_pd(rounded, _mm512_set1_pd(-1048576.0));
      rounded = _mm512_min_pd(rounded, _mm512_set1_pd(1048576.0));
      return _mm512_cvttpd_epi32(rounded);
    };
    const __m256i low =
        round(_mm512_mul_pd(_mm512_cvtepi32_pd(_mm512_castsi512_si256(x)), s.scale_low));
    const __m256i high =
        round(_mm512_mul_pd(_mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(x, 1)), s.scale_high));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  } else {
    const __m512i x2 = _mm512_add_epi32(x, x);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(x2, s.multiplier), s.rounding_even);
    const __m512i odd = _mm512_add_epi64(
        _mm512_mul_epi32(_mm512_srli_epi64(x2, 32), s.multiplier_odd), s.rounding_odd);
    // High halves: of `even` into the even lanes, of `odd` where they are.
    const __m512i high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
    const __m512i sign = _mm512_srai_epi32(x2, 31);
    return _mm512_srav_epi32(_mm512_add_epi32(high, sign), s.shift);
  }
}

// Zero point and clamp, and the way from int32 to bytes.
struct Bytes512 {
  __m512i zero_point, low, high, flip;
};

inline Bytes512 LoadBytes(int32_t zero_point, ClampRange clamp) {
  // One signed saturation serves both output types: uint8 is int8 moved by 128.
  const int32_t offset = clamp.max > 127 ? 128 : 0;
  Bytes512 b;
  b.zero_point = _mm512_set1_epi16(static_cast<int16_t>(zero_point - offset));
  b.low = _mm512_set1_epi8(static_cast<int8_t>(clamp.min - offset));
  b.high = _mm512_set1_epi8(static_cast<int8_t>(clamp.max - offset));
  b.flip = _mm512_set1_epi8(static_cast<int8_t>(offset));
  return b;
}

// Four times 16 rescaled values to 64 output bytes: those of v0, then v1, v2, v3. Saturation to
// int16 before the zero point is harmless: what saturates is beyond either clamp.
inline __m512i ToBytes(__m512i v0, __m512i v1, __m512i v2, __m512i v3, const Bytes512& b) {
  const __m512i v01 = _mm512_adds_epi16(_mm512_packs_epi32(v0, v1), b.zero_point);
  const __m512i v23 = _mm512_adds_epi16(_mm512_packs_epi32(v2, v3), b.zero_point);
  __m512i bytes = _mm512_packs_epi16(v01, v23);
  bytes = _mm512_min_epi8(_mm512_max_epi8(bytes, b.low), b.high);
  bytes = _mm512_xor_si512(bytes, b.flip);
  // Each 128-bit lane holds 4 bytes of each vector; gather them per vector.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, bytes);
}

}  // namespace
}  // namespace atollrt
