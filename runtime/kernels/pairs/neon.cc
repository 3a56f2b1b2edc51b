// SPDX-License-Identifier: Apache-2.0
//
// CombinePairsNeon: 16 bytes at a time. All that it does wraps, shifts and rounds as
// CombinePairsReference does, for all parameters.
#include "runtime/kernels/pairs/vector_pairs.h"

namespace atollrt {
namespace {

template <ByteType kType>
struct Lanes {
  static int32x4_t Add(int32x4_t a, int32x4_t b) { return vaddq_s32(a, b); }
  static int32x4_t Subtract(int32x4_t a, int32x4_t b) { return vsubq_s32(a, b); }
  static int32x4_t Multiply(int32x4_t a, int32x4_t b) { return vmulq_s32(a, b); }
  static int32x4_t WhereNegative(int32x4_t x, int32x4_t y, int32x4_t z) {
    return vbslq_s32(vcltzq_s32(x), y, z);
  }

  struct Operand {
    Operand(ByteType, int32_t zero) : zero_point(vdupq_n_s16(static_cast<int16_t>(zero))) {}
    int16x8_t zero_point;
  };
  static int32x4_t Widen(const uint8_t* from, int j, const Operand& operand) {
    const uint8x16_t bytes = vld1q_u8(from);
    int16x8_t wide;
    if constexpr (kType == ByteType::kInt8) {
      wide = j < 2 ? vmovl_s8(vreinterpret_s8_u8(vget_low_u8(bytes)))
                   : vmovl_high_s8(vreinterpretq_s8_u8(bytes));
    } else {
      wide = vreinterpretq_s16_u16(j < 2 ? vmovl_u8(vget_low_u8(bytes)) : vmovl_high_u8(bytes));
    }
    wide = vsubq_s16(wide, operand.zero_point);
    return j % 2 == 0 ? vmovl_s16(vget_low_s16(wide)) : vmovl_high_s16(wide);
  }

  // MultiplyByQuantizedMultiplier; requantize_neon.h has the roundings.
  struct Factor {
    explicit Factor(Multiplier m)
        : value(vdupq_n_s32(m.value)),
          before(vdupq_n_s32(m.exponent > 0 ? m.exponent & 31 : 0)),
          after(vdupq_n_s32(m.exponent > 0 ? 0 : m.exponent)) {}
    int32x4_t operator()(int32x4_t x) const {
      const int32x4_t t = vqrdmulhq_s32(vshlq_s32(x, before), value);
      // Less one where t < 0 and it is shifted to the right, which makes `after` negative.
      const int32x4_t less = vshrq_n_s32(vandq_s32(t, after), 31);
      return vrshlq_s32(vqaddq_s32(t, less), after);
    }
    int32x4_t value;
    int32x4_t before;  // left shift before the multiplication
    int32x4_t after;   // left shift after it, not positive
  };
  using Sum = Factor;
  struct Term {
    Term(Multiplier m, int32_t left_shift) : shift(vdupq_n_s32(left_shift)), factor(m) {}
    int32x4_t operator()(int32x4_t x) const { return factor(vshlq_s32(x, shift)); }
    int32x4_t shift;
    Factor factor;
  };

  // Results may be so large that the sum with the zero point wraps, so it comes before any
  // saturation.
  struct Output {
    explicit Output(const PairParams& p)
        : zero_point(vdupq_n_s32(p.output_zero_point)), bytes(LoadBytes(0, p.clamp)) {}
    uint8x16_t operator()(int32x4_t v0, int32x4_t v1, int32x4_t v2, int32x4_t v3) const {
      return ToBytes(vaddq_s32(v0, zero_point), vaddq_s32(v1, zero_point),
                     vaddq_s32(v2, zero_point), vaddq_s32(v3, zero_point), bytes);
    }
    int32x4_t zero_point;
    Bytes bytes;
  };
};

}  // namespace

void CombinePairsNeon(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                      int64_t count) {
  (params.type == ByteType::kInt8
       ? CombinePairs<Lanes<ByteType::kInt8>>
       : CombinePairs<Lanes<ByteType::kUInt8>>)(params, x1, x2, y, count);
}

}  // namespace atollrt
