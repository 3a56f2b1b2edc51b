// SPDX-License-Identifier: Apache-2.0
//
// CombinePairsAvx512Vnni: 64 bytes at a time, in four vectors of int32. (It needs no VNNI, but no
// CPU without it has a level of its own here.)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/quantization/requantize_avx512.h"

namespace atollrt {
namespace {

constexpr Epilogue kFixedPoint = Epilogue::kFixedPoint;

Scale512 Uniform(Multiplier m) {
  return FixedPointScale<kFixedPoint>(_mm512_set1_epi32(m.value), _mm512_set1_epi32(-m.exponent),
                                      /*zero_point=*/0);
}

// One of the inputs, on its way to a term of a sum.
struct Term {
  Scale512 scale;
  bool is_half;
  __m128i shift;  // the left shift, one less if halved
};

Term LoadTerm(Multiplier multiplier, int32_t left_shift) {
  const bool is_half = IsHalf(multiplier);
  return {Uniform(is_half ? Multiplier{0, -1} : multiplier), is_half,
          _mm_cvtsi32_si128(is_half ? left_shift - 1 : left_shift)};
}

inline __m512i Apply(__m512i x, const Term& term) {
  const __m512i shifted = _mm512_sll_epi32(x, term.shift);
  return term.is_half ? shifted : Rescale<kFixedPoint>(shifted, term.scale);
}

// Any multiplier. Those of a half and more have no second rounding: they are the high half of
// 2 (x << exponent) value + 2^31.
struct Factor {
  Scale512 scale;  // of a multiplier below a half; else the value and the rounding
  bool is_below_half;
  __m128i shift;  // exponent + 1
};

Factor LoadFactor(Multiplier m) {
  if (m.exponent < 0) return {Uniform(m), true, _mm_setzero_si128()};
  Factor factor = {Uniform({m.value, -1}), false, _mm_cvtsi32_si128(m.exponent + 1)};
  factor.scale.rounding_even = factor.scale.rounding_odd = _mm512_set1_epi64(int64_t{1} << 31);
  return factor;
}

inline __m512i Apply(__m512i x, const Factor& factor) {
  if (factor.is_below_half) return Rescale<kFixedPoint>(x, factor.scale);
  const Scale512& s = factor.scale;
  const __m512i x2 = _mm512_sll_epi32(x, factor.shift);
  const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(x2, s.multiplier), s.rounding_even);
  const __m512i odd = _mm512_add_epi64(
      _mm512_mul_epi32(_mm512_srli_epi64(x2, 32), s.multiplier_odd), s.rounding_odd);
  return _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
}

template <ByteType kType>
inline __m512i Widen(__m128i bytes, __m512i zero_point) {
  const __m512i wide =
      kType == ByteType::kInt8 ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
  return _mm512_sub_epi32(wide, zero_point);
}

// From sixteen values of both inputs, less their zero points, to the rescaled result.
template <PairOp kOp>
struct Combination {
  explicit Combination(const PairParams& p)
      : term1(LoadTerm(p.input1, p.left_shift)),
        term2(LoadTerm(p.input2, p.left_shift)),
        output(Uniform(p.output)) {}
  __m512i operator()(__m512i a, __m512i b) const {
    const __m512i x = Apply(a, term1);
    const __m512i y = Apply(b, term2);
    __m512i sum = kOp == PairOp::kAdd ? _mm512_add_epi32(x, y) : _mm512_sub_epi32(x, y);
    if constexpr (kOp == PairOp::kSquaredDifference) sum = _mm512_mullo_epi32(sum, sum);
    return Rescale<kFixedPoint>(sum, output);
  }
  const Term term1, term2;
  const Scale512 output;
};

template <>
struct Combination<PairOp::kMultiply> {
  explicit Combination(const PairParams& p) : output(LoadFactor(p.output)) {}
  __m512i operator()(__m512i a, __m512i b) const { return Apply(_mm512_mullo_epi32(a, b), output); }
  const Factor output;
};

template <>
struct Combination<PairOp::kPrelu> {
  explicit Combination(const PairParams& p)
      : positive(LoadFactor(p.input1)), negative(LoadFactor(p.output)) {}
  __m512i operator()(__m512i a, __m512i b) const {
    const __mmask16 is_negative = _mm512_movepi32_mask(a);
    return _mm512_mask_mov_epi32(Apply(a, positive), is_negative,
                                 Apply(_mm512_mullo_epi32(a, b), negative));
  }
  const Factor positive, negative;
};

// The bytes of a block of 64 that are there.
inline __mmask64 MaskOf(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

inline void Store(__m512i bytes, int64_t count, uint8_t* to) {
  if (count >= 64) {
    _mm512_storeu_si512(to, bytes);
  } else {
    _mm512_mask_storeu_epi8(to, MaskOf(count), bytes);
  }
}

template <PairOp kOp, ByteType kType>
void Run(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
         int64_t count) {
  const Combination<kOp> combine(params);
  const __m512i zero1 = _mm512_set1_epi32(params.input1_zero_point);
  const __m512i zero2 = _mm512_set1_epi32(params.input2_zero_point);
  const Bytes512 to_bytes = LoadBytes(params.output_zero_point, params.clamp);
  for (int64_t i = 0; i < count; i += 64) {
    const __mmask64 mask = MaskOf(count - i);
    __m512i v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __mmask16 part = static_cast<__mmask16>(mask >> (16 * j));
      v[j] = combine(Widen<kType>(_mm_maskz_loadu_epi8(part, x1 + i + 16 * j), zero1),
                     Widen<kType>(_mm_maskz_loadu_epi8(part, x2 + i + 16 * j), zero2));
    }
    Store(ToBytes<ZeroPoint::kToAdd>(v[0], v[1], v[2], v[3], to_bytes), count - i, y + i);
  }
}

// MAXIMUM and MINIMUM.
template <typename Select>
void RunSelect(const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count, Select select) {
  for (int64_t i = 0; i < count; i += 64) {
    const __mmask64 mask = MaskOf(count - i);
    Store(select(_mm512_maskz_loadu_epi8(mask, x1 + i), _mm512_maskz_loadu_epi8(mask, x2 + i)),
          count - i, y + i);
  }
}

template <ByteType kType>
void RunType(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
             int64_t count) {
  constexpr bool kSigned = kType == ByteType::kInt8;
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
      return RunSelect(x1, x2, y, count, [](__m512i a, __m512i b) {
        return kSigned ? _mm512_max_epi8(a, b) : _mm512_max_epu8(a, b);
      });
    case PairOp::kMinimum:
      return RunSelect(x1, x2, y, count, [](__m512i a, __m512i b) {
        return kSigned ? _mm512_min_epi8(a, b) : _mm512_min_epu8(a, b);
      });
  }
}

}  // namespace

void CombinePairsAvx512Vnni(const PairParams& params, const uint8_t* x1, const uint8_t* x2,
                            uint8_t* y, int64_t count) {
  if (!IsVectorizable(params)) {
    CombinePairsReference(params, x1, x2, y, count);
  } else if (params.type == ByteType::kInt8) {
    RunType<ByteType::kInt8>(params, x1, x2, y, count);
  } else {
    RunType<ByteType::kUInt8>(params, x1, x2, y, count);
  }
}

}  // namespace atollrt
