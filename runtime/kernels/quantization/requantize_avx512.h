// SPDX-License-Identifier: Apache-2.0
//
// Part of requantize.h: AVX-512.
//
// kFloatPositive and kFloat are float_stage.h's, with the rounding in the instructions, whatever
// the control register says. kFixedPoint is derived in requantize_avx2.h. kWide goes step by step
// as quantization.h does, wraps included: for all x and all shifts.
#pragma once

#include <immintrin.h>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {
namespace {

using Vector = __m512i;
using ByteVector = __m512i;
constexpr int kLanes = 16;

inline Vector LoadVector(const void* from) { return _mm512_loadu_si512(from); }
inline void StoreVector(void* to, Vector vector) { _mm512_storeu_si512(to, vector); }

inline void StoreBytes(uint8_t* to, ByteVector bytes) { StoreVector(to, bytes); }

struct Scale {
  __m512i multiplier, multiplier_odd;  // the second serves the odd lanes, moved to even places
  __m512i rounding_even, rounding_odd;
  __m512i shift;
  __m512d scale_low, scale_high;
  __m512i left, zero_point, low, high;  // kWide
  __m512 float_scale, float_offset;     // kFloatPositive and kFloat
  __m512i exception;                    // kFloat
};

inline Scale FixedPointScale(__m512i multiplier, __m512i shift) {
  Scale s = {};
  s.multiplier = multiplier;
  s.multiplier_odd = _mm512_srli_epi64(multiplier, 32);
  s.shift = shift;
  const __m512i half =
      _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_sub_epi32(shift, _mm512_set1_epi32(1)));
  const __m512i low = _mm512_set1_epi64(int64_t{1} << 31);
  s.rounding_even = _mm512_or_si512(_mm512_slli_epi64(half, 32), low);
  s.rounding_odd = _mm512_mask_mov_epi32(low, 0xAAAA, half);
  return s;
}

template <Epilogue kEpilogue>
inline Scale LoadScale(const OutputColumns& columns, int32_t column) {
  Scale s = {};
  if constexpr (kEpilogue == Epilogue::kDouble) {
    s.scale_low = _mm512_load_pd(columns.scale + column);
    s.scale_high = _mm512_load_pd(columns.scale + column + 8);
    return s;
  } else if constexpr (kEpilogue == Epilogue::kFloatPositive || kEpilogue == Epilogue::kFloat) {
    s.float_scale = _mm512_load_ps(columns.float_scale + column);
    s.float_offset = _mm512_load_ps(columns.float_offset + column);
    s.exception = _mm512_load_si512(columns.exception + column);
    return s;
  } else if constexpr (kEpilogue == Epilogue::kFixedPoint) {
    return FixedPointScale(_mm512_load_si512(columns.multiplier + column),
                           _mm512_load_si512(columns.shift + column));
  } else {
    static_assert(kEpilogue == Epilogue::kWide);
    s.multiplier = _mm512_load_si512(columns.multiplier + column);
    s.multiplier_odd = _mm512_srli_epi64(s.multiplier, 32);
    const __m512i shift = _mm512_load_si512(columns.shift + column);
    const __m512i zero = _mm512_setzero_si512();
    s.shift = _mm512_max_epi32(shift, zero);
    s.left = _mm512_and_si512(_mm512_max_epi32(_mm512_sub_epi32(zero, shift), zero),
                              _mm512_set1_epi32(31));
    s.zero_point = _mm512_set1_epi32(columns.zero_point);
    s.low = _mm512_set1_epi32(columns.clamp.min);
    s.high = _mm512_set1_epi32(columns.clamp.max);
    return s;
  }
}

// High halves of x * multiplier + rounding.
inline __m512i MultiplyHigh(__m512i x, const Scale& s) {
  const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(x, s.multiplier), s.rounding_even);
  const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(x, 32), s.multiplier_odd),
                                       s.rounding_odd);
  // Of `even` into the even lanes, of `odd` where they are.
  return _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
}

// To the nearest, without a look at the control register.
constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

inline __m512i FloatStage(__m512i x, __m512 scale, __m512 offset) {
  return _mm512_cvt_roundps_epi32(
      _mm512_fmadd_round_ps(_mm512_cvt_roundepi32_ps(x, kToNearest), scale, offset, kToNearest),
      kToNearest);
}

// kWide clamps, and takes the zero point off again.
template <Epilogue kEpilogue>
inline __m512i Rescale(__m512i x, const Scale& s) {
  if constexpr (kEpilogue == Epilogue::kDouble) {
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
  } else if constexpr (kEpilogue == Epilogue::kFloatPositive) {
    return FloatStage(x, s.float_scale, s.float_offset);
  } else if constexpr (kEpilogue == Epilogue::kFloat) {
    constexpr int kFirstWithSigns = 0x78;  // a ^ (b & c)
    const __m512i offset = _mm512_ternarylogic_epi32(_mm512_castps_si512(s.float_offset), x,
                                                     _mm512_set1_epi32(INT32_MIN), kFirstWithSigns);
    const __m512i y = FloatStage(x, s.float_scale, _mm512_castsi512_ps(offset));
    return _mm512_mask_add_epi32(y, _mm512_cmpeq_epi32_mask(x, s.exception), y,
                                 _mm512_set1_epi32(1));
  } else if constexpr (kEpilogue == Epilogue::kFixedPoint) {
    __m512i high = MultiplyHigh(_mm512_add_epi32(x, x), s);
    high = _mm512_add_epi32(high, _mm512_srai_epi32(x, 31));
    return _mm512_srav_epi32(high, s.shift);
  } else {
    static_assert(kEpilogue == Epilogue::kWide);
    const __m512i half = _mm512_set1_epi64(int64_t{1} << 30);
    x = _mm512_sllv_epi32(x, s.left);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(x, s.multiplier), half);
    const __m512i odd =
        _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(x, 32), s.multiplier_odd), half);
    // Bits 31 to 62 of each.
    const __m512i t =
        _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 31), 0xAAAA, _mm512_slli_epi64(odd, 1));
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i mask = _mm512_sub_epi32(_mm512_sllv_epi32(one, s.shift), one);
    const __m512i threshold =
        _mm512_sub_epi32(_mm512_srli_epi32(mask, 1), _mm512_srai_epi32(t, 31));
    const __m512i whole = _mm512_srav_epi32(t, s.shift);
    const __mmask16 is_up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(t, mask), threshold);
    __m512i y = _mm512_mask_add_epi32(whole, is_up, whole, one);
    y = _mm512_add_epi32(y, s.zero_point);
    y = _mm512_min_epi32(_mm512_max_epi32(y, s.low), s.high);
    return _mm512_sub_epi32(y, s.zero_point);
  }
}

// Zero point and clamp, and the way from int32 to bytes.
struct Bytes {
  __m512i zero_point, low, high, flip;
};

inline Bytes LoadBytes(int32_t zero_point, ClampRange clamp) {
  // One signed saturation serves both output types: uint8 is int8 moved by 128.
  const int32_t offset = clamp.max > 127 ? 128 : 0;
  Bytes b;
  b.zero_point = _mm512_set1_epi16(static_cast<int16_t>(zero_point - offset));
  b.low = _mm512_set1_epi8(static_cast<int8_t>(clamp.min - offset));
  b.high = _mm512_set1_epi8(static_cast<int8_t>(clamp.max - offset));
  b.flip = _mm512_set1_epi8(static_cast<int8_t>(offset));
  return b;
}

// Four times 16 rescaled values to 64 output bytes: those of v0, then v1, v2, v3. Saturation to
// int16 before the zero point is harmless: what saturates is beyond either clamp.
inline __m512i ToBytes(__m512i v0, __m512i v1, __m512i v2, __m512i v3, const Bytes& b) {
  const __m512i v01 = _mm512_adds_epi16(_mm512_packs_epi32(v0, v1), b.zero_point);
  const __m512i v23 = _mm512_adds_epi16(_mm512_packs_epi32(v2, v3), b.zero_point);
  __m512i bytes = _mm512_packs_epi16(v01, v23);
  bytes = _mm512_min_epi8(_mm512_max_epi8(bytes, b.low), b.high);
  bytes = _mm512_xor_si512(bytes, b.flip);
  // Each 128-bit lane holds 4 bytes of each vector; gather them per vector.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, bytes);
}

inline __mmask16 LowBytes16(int32_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1 << count) - 1);
}

// Stores the bytes that `mask` names of each quarter of a ByteVector, the i-th to `to[i]`.
inline void StoreQuarters(__m512i bytes, __mmask16 mask, uint8_t* const to[4]) {
  const __m128i quarter[4] = {_mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
                              _mm512_extracti32x4_epi32(bytes, 2),
                              _mm512_extracti32x4_epi32(bytes, 3)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    if (mask == 0xFFFF) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to[i]), quarter[i]);
    } else {
      _mm_mask_storeu_epi8(to[i], mask, quarter[i]);
    }
  }
}

}  // namespace
}  // namespace atollrt
