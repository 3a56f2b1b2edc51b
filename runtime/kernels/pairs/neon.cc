// SPDX-License-Identifier: Apache-2.0
//
// CombinePairsNeon: 16 bytes at a time, in four vectors of int32. All that it does wraps, shifts
// and rounds as CombinePairsReference does, for all parameters.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/quantization/requantize_neon.h"

namespace atollrt {
namespace {

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

// From four values of both inputs, less their zero points, to the rescaled result.
template <PairOp kOp>
struct Combination {
  explicit Combination(const PairParams& p)
      : left_shift(vdupq_n_s32(p.left_shift)),
        factor1(p.input1),
        factor2(p.input2),
        output(p.output) {}
  int32x4_t operator()(int32x4_t a, int32x4_t b) const {
    const int32x4_t x = factor1(vshlq_s32(a, left_shift));
    const int32x4_t y = factor2(vshlq_s32(b, left_shift));
    int32x4_t sum = kOp == PairOp::kAdd ? vaddq_s32(x, y) : vsubq_s32(x, y);
    if constexpr (kOp == PairOp::kSquaredDifference) sum = vmulq_s32(sum, sum);
    return output(sum);
  }
  const int32x4_t left_shift;
  const Factor factor1, factor2, output;
};

template <>
struct Combination<PairOp::kMultiply> {
  explicit Combination(const PairParams& p) : output(p.output) {}
  int32x4_t operator()(int32x4_t a, int32x4_t b) const { return output(vmulq_s32(a, b)); }
  const Factor output;
};

template <>
struct Combination<PairOp::kPrelu> {
  explicit Combination(const PairParams& p) : positive(p.input1), negative(p.output) {}
  int32x4_t operator()(int32x4_t a, int32x4_t b) const {
    return vbslq_s32(vcltzq_s32(a), negative(vmulq_s32(a, b)), positive(a));
  }
  const Factor positive, negative;
};

// 16 values, less their zero point, in four vectors.
template <ByteType kType>
inline void Widen(uint8x16_t bytes, int16x8_t zero_point, int32x4_t values[4]) {
  int16x8_t low, high;
  if constexpr (kType == ByteType::kInt8) {
    low = vmovl_s8(vreinterpret_s8_u8(vget_low_u8(bytes)));
    high = vmovl_high_s8(vreinterpretq_s8_u8(bytes));
  } else {
    low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
    high = vreinterpretq_s16_u16(vmovl_high_u8(bytes));
  }
  low = vsubq_s16(low, zero_point);
  high = vsubq_s16(high, zero_point);
  values[0] = vmovl_s16(vget_low_s16(low));
  values[1] = vmovl_high_s16(low);
  values[2] = vmovl_s16(vget_low_s16(high));
  values[3] = vmovl_high_s16(high);
}

// y = block(x1, x2), 16 bytes at a time.
template <typename Block>
void ForEachBlock(const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count, Block block) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) vst1q_u8(y + i, block(vld1q_u8(x1 + i), vld1q_u8(x2 + i)));
  if (i == count) return;
  alignas(16) uint8_t rest1[16] = {}, rest2[16] = {};
  for (int64_t j = 0; i + j < count; ++j) {
    rest1[j] = x1[i + j];
    rest2[j] = x2[i + j];
  }
  StoreBytes(y + i, block(vld1q_u8(rest1), vld1q_u8(rest2)), static_cast<int32_t>(count - i));
}

template <PairOp kOp, ByteType kType>
void Run(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
         int64_t count) {
  const Combination<kOp> combine(params);
  const int16x8_t zero1 = vdupq_n_s16(static_cast<int16_t>(params.input1_zero_point));
  const int16x8_t zero2 = vdupq_n_s16(static_cast<int16_t>(params.input2_zero_point));
  // Results may be so large that the sum with the zero point wraps, so it comes before any
  // saturation.
  const int32x4_t output_zero = vdupq_n_s32(params.output_zero_point);
  const Bytes128 to_bytes = LoadBytes(0, params.clamp);
  ForEachBlock(x1, x2, y, count, [&](uint8x16_t bytes1, uint8x16_t bytes2) {
    int32x4_t a[4], b[4];
    Widen<kType>(bytes1, zero1, a);
    Widen<kType>(bytes2, zero2, b);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) a[j] = vaddq_s32(combine(a[j], b[j]), output_zero);
    return ToBytes(a[0], a[1], a[2], a[3], to_bytes);
  });
}

// MAXIMUM and MINIMUM.
template <ByteType kType>
void RunMaximum(const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count) {
  ForEachBlock(x1, x2, y, count, [](uint8x16_t a, uint8x16_t b) {
    if constexpr (kType == ByteType::kUInt8) return vmaxq_u8(a, b);
    return vreinterpretq_u8_s8(vmaxq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)));
  });
}

template <ByteType kType>
void RunMinimum(const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count) {
  ForEachBlock(x1, x2, y, count, [](uint8x16_t a, uint8x16_t b) {
    if constexpr (kType == ByteType::kUInt8) return vminq_u8(a, b);
    return vreinterpretq_u8_s8(vminq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)));
  });
}

template <ByteType kType>
void RunType(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
             int64_t count) {
  switch (params.op) {
    case PairOp::kAdd:
      return Run<PairOp::kAdd, kType>(params, x1, x2, y, count);
    case PairOp::kSubtract:
      return Run<PairOp::kSubtract, kType>(params, x1, x2, y, count);
    case PairOp::kSquaredDifference:
      return Run<PairOp::kSquaredDifference, kType>(params, x1, x2, y, count);
    case PairOp::kMultiply:
      return Run<PairOp::kMultiply, kType>(params, x1, x2, y, count);
    case PairOp::kPrelu:
      return Run<PairOp::kPrelu, kType>(params, x1, x2, y, count);
    case PairOp::kMaximum:
      return RunMaximum<kType>(x1, x2, y, count);
    case PairOp::kMinimum:
      return RunMinimum<kType>(x1, x2, y, count);
  }
}

}  // namespace

void CombinePairsNeon(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                      int64_t count) {
  (params.type == ByteType::kInt8 ? RunType<ByteType::kInt8>
                                  : RunType<ByteType::kUInt8>)(params, x1, x2, y, count);
}

}  // namespace atollrt
