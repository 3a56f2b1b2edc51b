// SPDX-License-Identifier: Apache-2.0
//
// Part of requantize.h: NEON.
//
// NEON has both roundings of TensorFlow Lite, nearly. SQRDMULH is (2 a b + 2^31) >> 32, saturated
// for a = b = -2^31: SaturatingRoundingDoublingHighMul. SRSHL by -n is floor((t + 2^(n-1)) / 2^n):
// it takes halves up, RoundingDivideByPowerOfTwo takes them away from zero. For t < 0 and n >= 1
// these agree once t is lowered by one: halves then fall below the half, and nothing else crosses a
// boundary, since remainders are whole. t does not wrap by that, as it is greater than -2^31 for
// multipliers that are not negative. kWide also has n = 0 and shifts to the left, and adds the zero
// point in 32 bits: for all that is wide_vectorizable.
#pragma once

#include <arm_neon.h>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {
namespace {

using Vector = int32x4_t;
using ByteVector = uint8x16_t;
constexpr int kLanes = 4;

inline Vector LoadVector(const int32_t* from) { return vld1q_s32(from); }
inline void StoreVector(int32_t* to, Vector vector) { vst1q_s32(to, vector); }
inline void StoreBytes(uint8_t* to, ByteVector bytes) { vst1q_u8(to, bytes); }

struct Scale {
  int32x4_t multiplier;
  int32x4_t left_shift;  // negative: SRSHL shifts to the left
  float64x2_t scale_low, scale_high;
  int32x4_t left, zero_point, low, high;  // kWide
};

template <Epilogue kEpilogue>
inline Scale LoadScale(const OutputColumns& columns, int32_t column) {
  Scale s = {};
  if constexpr (kEpilogue == Epilogue::kDouble) {
    s.scale_low = vld1q_f64(columns.scale + column);
    s.scale_high = vld1q_f64(columns.scale + column + 2);
  } else {
    s.multiplier = vld1q_s32(columns.multiplier + column);
    s.left_shift = vnegq_s32(vld1q_s32(columns.shift + column));
  }
  if constexpr (kEpilogue == Epilogue::kWide) {
    const int32x4_t zero = vdupq_n_s32(0);
    s.left = vandq_s32(vmaxq_s32(s.left_shift, zero), vdupq_n_s32(31));
    s.left_shift = vminq_s32(s.left_shift, zero);
    s.zero_point = vdupq_n_s32(columns.zero_point);
    s.low = vdupq_n_s32(columns.clamp.min);
    s.high = vdupq_n_s32(columns.clamp.max);
  }
  return s;
}

// kWide clamps, and takes the zero point off again.
template <Epilogue kEpilogue>
inline int32x4_t Rescale(int32x4_t x, const Scale& s) {
  if constexpr (kEpilogue == Epilogue::kDouble) {
    // FCVTAS rounds halves away from zero and saturates, as does the way to int32; what saturates
    // is beyond any clamp.
    const auto round = [](int32x2_t v, float64x2_t scale) {
      const float64x2_t product = vmulq_f64(vcvtq_f64_s64(vmovl_s32(v)), scale);
      return vqmovn_s64(vcvtaq_s64_f64(product));
    };
    return vcombine_s32(round(vget_low_s32(x), s.scale_low), round(vget_high_s32(x), s.scale_high));
  } else if constexpr (kEpilogue == Epilogue::kWide) {
    const int32x4_t t = vqrdmulhq_s32(vshlq_s32(x, s.left), s.multiplier);
    // t - [t < 0 and n >= 1].
    const int32x4_t lowered = vsraq_n_s32(t, vandq_s32(t, s.left_shift), 31);
    int32x4_t y = vaddq_s32(vrshlq_s32(lowered, s.left_shift), s.zero_point);
    y = vminq_s32(vmaxq_s32(y, s.low), s.high);
    return vsubq_s32(y, s.zero_point);
  } else {
    const int32x4_t t = vqrdmulhq_s32(x, s.multiplier);
    // t - [t < 0].
    return vrshlq_s32(vsraq_n_s32(t, t, 31), s.left_shift);
  }
}

// Zero point and clamp, and the way from int32 to bytes.
struct Bytes {
  int16x8_t zero_point;
  int8x16_t low, high, flip;
};

inline Bytes LoadBytes(int32_t zero_point, ClampRange clamp) {
  // One signed saturation serves both output types: uint8 is int8 moved by 128.
  const int32_t offset = clamp.max > 127 ? 128 : 0;
  return {vdupq_n_s16(static_cast<int16_t>(zero_point - offset)),
          vdupq_n_s8(static_cast<int8_t>(clamp.min - offset)),
          vdupq_n_s8(static_cast<int8_t>(clamp.max - offset)),
          vdupq_n_s8(static_cast<int8_t>(offset))};
}

// Four times 4 rescaled values to 16 output bytes: those of v0, then v1, v2, v3. Saturation to
// int16 before the zero point is harmless: what saturates is beyond either clamp.
inline uint8x16_t ToBytes(int32x4_t v0, int32x4_t v1, int32x4_t v2, int32x4_t v3, const Bytes& b) {
  const int16x8_t v01 = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(v0), v1), b.zero_point);
  const int16x8_t v23 = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(v2), v3), b.zero_point);
  int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(v01), v23);
  bytes = vminq_s8(vmaxq_s8(bytes, b.low), b.high);
  return vreinterpretq_u8_s8(veorq_s8(bytes, b.flip));
}

}  // namespace
}  // namespace atollrt
