// SPDX-License-Identifier: Apache-2.0
//
// Part of requantize.h: AVX2 and FMA.
//
// Accumulators become bytes by one multiply-add of floats, where float_stage.h has proven it equal.
// Else, and for operands of two tensors (pairs.h), the two roundings of TensorFlow Lite are one
// shift. With x the accumulator, q >= 0 the multiplier and n >= 1 the shift, Requantize computes
//   t = floor((x q + 2^30) / 2^31),   y = floor((t + 2^(n-1) - [t < 0]) / 2^n).
// Adding integers before a floor, and dividing twice, may be merged:
//   y = floor((2 x q + 2^31 + 2^(31+n) - 2^32 [t < 0]) / 2^(32+n)),
// so y = (high32(2 x q + 2^31 + 2^(31+n)) - [t < 0]) >> n. Finally [x < 0] may stand for [t < 0]:
// they differ only where x < 0 and t = 0, and then both give y = 0 as n >= 1.
// |x| < 2^30 keeps 2 x within 32 bits; the sum stays below 2^62 + 2^62 + 2^31 < 2^63.
#pragma once

#include <immintrin.h>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {
namespace {

using Vector = __m256i;
using ByteVector = __m256i;
constexpr int kLanes = 8;

inline Vector LoadVector(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
inline void StoreVector(void* to, Vector vector) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), vector);
}
inline void StoreBytes(uint8_t* to, ByteVector bytes) { StoreVector(to, bytes); }

struct Scale {
  __m256i multiplier, multiplier_odd;  // the second serves the odd lanes, moved to even places
  __m256i rounding_even, rounding_odd;
  __m256i shift;
  __m256d scale_low, scale_high;
  __m256i left, zero_point, low, high;  // kWide
  __m256 float_scale, float_offset;     // kFloatPositive and kFloat
  __m256i exception;                    // kFloat
};

inline Scale FixedPointScale(__m256i multiplier, __m256i shift) {
  Scale s = {};
  s.multiplier = multiplier;
  s.multiplier_odd = _mm256_srli_epi64(multiplier, 32);
  s.shift = shift;
  const __m256i half =
      _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_sub_epi32(shift, _mm256_set1_epi32(1)));
  const __m256i low = _mm256_set1_epi64x(int64_t{1} << 31);
  s.rounding_even = _mm256_or_si256(_mm256_slli_epi64(half, 32), low);
  s.rounding_odd = _mm256_or_si256(_mm256_blend_epi32(_mm256_setzero_si256(), half, 0xAA), low);
  return s;
}

template <Epilogue kEpilogue>
inline Scale LoadScale(const OutputColumns& columns, int32_t column) {
  if constexpr (kEpilogue == Epilogue::kDouble) {
    Scale s = {};
    s.scale_low = _mm256_loadu_pd(columns.scale + column);
    s.scale_high = _mm256_loadu_pd(columns.scale + column + 4);
    return s;
  } else if constexpr (kEpilogue == Epilogue::kFloatPositive || kEpilogue == Epilogue::kFloat) {
    Scale s = {};
    s.float_scale = _mm256_loadu_ps(columns.float_scale + column);
    s.float_offset = _mm256_loadu_ps(columns.float_offset + column);
    s.exception = LoadVector(columns.exception + column);
    return s;
  } else if constexpr (kEpilogue == Epilogue::kFixedPoint) {
    return FixedPointScale(LoadVector(columns.multiplier + column),
                           LoadVector(columns.shift + column));
  } else {
    static_assert(kEpilogue == Epilogue::kWide);
    Scale s = {};
    s.multiplier = LoadVector(columns.multiplier + column);
    s.multiplier_odd = _mm256_srli_epi64(s.multiplier, 32);
    const __m256i shift = LoadVector(columns.shift + column);
    const __m256i zero = _mm256_setzero_si256();
    s.shift = _mm256_max_epi32(shift, zero);
    s.left = _mm256_and_si256(_mm256_max_epi32(_mm256_sub_epi32(zero, shift), zero),
                              _mm256_set1_epi32(31));
    s.zero_point = _mm256_set1_epi32(columns.zero_point);
    s.low = _mm256_set1_epi32(columns.clamp.min);
    s.high = _mm256_set1_epi32(columns.clamp.max);
    return s;
  }
}

// High halves of x * multiplier + rounding.
inline __m256i MultiplyHigh(__m256i x, const Scale& s) {
  const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(x, s.multiplier), s.rounding_even);
  const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), s.multiplier_odd),
                                       s.rounding_odd);
  // Of `even` into the even lanes, of `odd` where they are.
  return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

// kWide goes step by step as quantization.h does, wraps included; it clamps, and takes the zero
// point off again.
template <Epilogue kEpilogue>
inline __m256i Rescale(__m256i x, const Scale& s) {
  if constexpr (kEpilogue == Epilogue::kDouble) {
    const auto round = [](__m256d v) {
      // Truncation and its remainder are exact, hence so is this rounding of halves away from 0.
      const __m256d whole = _mm256_round_pd(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
      const __m256d rest = _mm256_sub_pd(v, whole);
      const __m256d one = _mm256_set1_pd(1.0);
      const __m256d up = _mm256_cmp_pd(rest, _mm256_set1_pd(0.5), _CMP_GE_OQ);
      const __m256d down = _mm256_cmp_pd(rest, _mm256_set1_pd(-0.5), _CMP_LE_OQ);
      __m256d rounded = _mm256_add_pd(whole, _mm256_and_pd(up, one));
      rounded = _mm256_sub_pd(rounded, _mm256_and_pd(down, one));
      // Beyond any clamp, within int32.
      rounded = _mm256_max_pd(rounded, _mm256_set1_pd(-1048576.0));
      rounded = _mm256_min_pd(rounded, _mm256_set1_pd(1048576.0));
      return _mm256_cvttpd_epi32(rounded);
    };
    const __m128i low =
        round(_mm256_mul_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(x)), s.scale_low));
    const __m128i high =
        round(_mm256_mul_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(x, 1)), s.scale_high));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  } else if constexpr (kEpilogue == Epilogue::kFloatPositive) {
    return _mm256_cvtps_epi32(
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), s.float_scale, s.float_offset));
  } else if constexpr (kEpilogue == Epilogue::kFloat) {
    const __m256 sign = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(INT32_MIN)));
    const __m256i y = _mm256_cvtps_epi32(
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), s.float_scale, _mm256_xor_ps(s.float_offset, sign)));
    return _mm256_sub_epi32(y, _mm256_cmpeq_epi32(x, s.exception));
  } else if constexpr (kEpilogue == Epilogue::kFixedPoint) {
    const __m256i x2 = _mm256_add_epi32(x, x);
    const __m256i high = MultiplyHigh(x2, s);
    const __m256i sign = _mm256_srai_epi32(x2, 31);
    return _mm256_srav_epi32(_mm256_add_epi32(high, sign), s.shift);
  } else {
    static_assert(kEpilogue == Epilogue::kWide);
    const __m256i half = _mm256_set1_epi64x(int64_t{1} << 30);
    x = _mm256_sllv_epi32(x, s.left);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(x, s.multiplier), half);
    const __m256i odd =
        _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), s.multiplier_odd), half);
    // Bits 31 to 62 of each.
    const __m256i t =
        _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i mask = _mm256_sub_epi32(_mm256_sllv_epi32(one, s.shift), one);
    const __m256i threshold =
        _mm256_sub_epi32(_mm256_srli_epi32(mask, 1), _mm256_srai_epi32(t, 31));
    __m256i y = _mm256_sub_epi32(_mm256_srav_epi32(t, s.shift),
                                 _mm256_cmpgt_epi32(_mm256_and_si256(t, mask), threshold));
    y = _mm256_add_epi32(y, s.zero_point);
    y = _mm256_min_epi32(_mm256_max_epi32(y, s.low), s.high);
    return _mm256_sub_epi32(y, s.zero_point);
  }
}

// Zero point and clamp, and the way from int32 to bytes.
struct Bytes {
  __m256i zero_point, low, high, flip;
};

inline Bytes LoadBytes(int32_t zero_point, ClampRange clamp) {
  // One signed saturation serves both output types: uint8 is int8 moved by 128.
  const int32_t offset = clamp.max > 127 ? 128 : 0;
  Bytes b;
  b.zero_point = _mm256_set1_epi16(static_cast<int16_t>(zero_point - offset));
  b.low = _mm256_set1_epi8(static_cast<int8_t>(clamp.min - offset));
  b.high = _mm256_set1_epi8(static_cast<int8_t>(clamp.max - offset));
  b.flip = _mm256_set1_epi8(static_cast<int8_t>(offset));
  return b;
}

// Four times 8 rescaled values to 32 output bytes: those of v0, then v1, v2, v3. Saturation to
// int16 before the zero point is harmless: what saturates is beyond either clamp.
inline __m256i ToBytes(__m256i v0, __m256i v1, __m256i v2, __m256i v3, const Bytes& b) {
  const __m256i v01 = _mm256_adds_epi16(_mm256_packs_epi32(v0, v1), b.zero_point);
  const __m256i v23 = _mm256_adds_epi16(_mm256_packs_epi32(v2, v3), b.zero_point);
  __m256i bytes = _mm256_packs_epi16(v01, v23);
  bytes = _mm256_min_epi8(_mm256_max_epi8(bytes, b.low), b.high);
  bytes = _mm256_xor_si256(bytes, b.flip);
  // Each 128-bit lane holds 4 bytes of each vector; gather them per vector.
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

}  // namespace
}  // namespace atollrt
