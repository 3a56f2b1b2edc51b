// SPDX-License-Identifier: Apache-2.0
//
// CombinePairsAvx2: 32 bytes at a time, in four vectors of int32.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/quantization/requantize_avx2.h"

namespace atollrt {
namespace {

constexpr Epilogue kFixedPoint = Epilogue::kFixedPoint;

Scale256 Uniform(Multiplier m) {
  return FixedPointScale(_mm256_set1_epi32(m.value), _mm256_set1_epi32(-m.exponent));
}

// One of the inputs, on its way to a term of a sum.
struct Term {
  Scale256 scale;
  bool is_half;
  __m128i shift;  // the left shift, one less if halved
};

Term LoadTerm(Multiplier multiplier, int32_t left_shift) {
  const bool is_half = IsHalf(multiplier);
  return {Uniform(is_half ? Multiplier{0, -1} : multiplier), is_half,
          _mm_cvtsi32_si128(is_half ? left_shift - 1 : left_shift)};
}

inline __m256i Apply(__m256i x, const Term& term) {
  const __m256i shifted = _mm256_sll_epi32(x, term.shift);
  return term.is_half ? shifted : Rescale<kFixedPoint>(shifted, term.scale);
}

// Any multiplier. Those of a half and more have no second rounding: they are the high half of
// 2 (x << exponent) value + 2^31.
struct Factor {
  Scale256 scale;  // of a multiplier below a half; else the value and the rounding
  bool is_below_half;
  __m128i shift;  // exponent + 1
};

Factor LoadFactor(Multiplier m) {
  if (m.exponent < 0) return {Uniform(m), true, _mm_setzero_si128()};
  Factor factor = {Uniform({m.value, -1}), false, _mm_cvtsi32_si128(m.exponent + 1)};
  factor.scale.rounding_even = factor.scale.rounding_odd = _mm256_set1_epi64x(int64_t{1} << 31);
  return factor;
}

inline __m256i Apply(__m256i x, const Factor& factor) {
  if (factor.is_below_half) return Rescale<kFixedPoint>(x, factor.scale);
  const Scale256& s = factor.scale;
  const __m256i x2 = _mm256_sll_epi32(x, factor.shift);
  const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(x2, s.multiplier), s.rounding_even);
  const __m256i odd = _mm256_add_epi64(
      _mm256_mul_epi32(_mm256_srli_epi64(x2, 32), s.multiplier_odd), s.rounding_odd);
  return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

// One code for both types: of a uint8, no bits but its own are kept.
struct Operand {
  __m256i bits;
  __m256i zero_point;
};

Operand LoadOperand(ByteType type, int32_t zero_point) {
  return {_mm256_set1_epi32(type == ByteType::kInt8 ? -1 : 0xff), _mm256_set1_epi32(zero_point)};
}

inline __m256i Widen(const uint8_t* from, const Operand& operand) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  const __m256i value = _mm256_and_si256(_mm256_cvtepi8_epi32(bytes), operand.bits);
  return _mm256_sub_epi32(value, operand.zero_point);
}

// From eight values of both inputs, less their zero points, to the rescaled result.
template <PairOp kOp>
struct Combination {
  explicit Combination(const PairParams& p)
      : term1(LoadTerm(p.input1, p.left_shift)),
        term2(LoadTerm(p.input2, p.left_shift)),
        output(Uniform(p.output)) {}
  __m256i operator()(__m256i a, __m256i b) const {
    const __m256i x = Apply(a, term1);
    const __m256i y = Apply(b, term2);
    __m256i sum = kOp == PairOp::kAdd ? _mm256_add_epi32(x, y) : _mm256_sub_epi32(x, y);
    if constexpr (kOp == PairOp::kSquaredDifference) sum = _mm256_mullo_epi32(sum, sum);
    return Rescale<kFixedPoint>(sum, output);
  }
  const Term term1, term2;
  const Scale256 output;
};

template <>
struct Combination<PairOp::kMultiply> {
  explicit Combination(const PairParams& p) : output(LoadFactor(p.output)) {}
  __m256i operator()(__m256i a, __m256i b) const { return Apply(_mm256_mullo_epi32(a, b), output); }
  const Factor output;
};

template <>
struct Combination<PairOp::kPrelu> {
  explicit Combination(const PairParams& p)
      : positive(LoadFactor(p.input1)), negative(LoadFactor(p.output)) {}
  __m256i operator()(__m256i a, __m256i b) const {
    const __m256i below = Apply(_mm256_mullo_epi32(a, b), negative);
    return _mm256_blendv_epi8(Apply(a, positive), below, _mm256_srai_epi32(a, 31));
  }
  const Factor positive, negative;
};

// y = block(x1, x2), 32 bytes at a time; the last ones by way of copies, so that there is one code.
template <typename Block>
void ForEachBlock(const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count, Block block) {
  alignas(32) uint8_t rest1[32], rest2[32], rest[32];
  uint8_t* to = y;
  for (int64_t i = 0; i < count; i += 32, x1 += 32, x2 += 32, to += 32) {
    const int64_t left = count - i;
    if (left < 32) {
      for (int64_t j = 0; j < 32; ++j) {
        rest1[j] = j < left ? x1[j] : 0;
        rest2[j] = j < left ? x2[j] : 0;
      }
      x1 = rest1;
      x2 = rest2;
      to = rest;
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), block(x1, x2));
  }
  for (int64_t j = 0; j < count % 32; ++j) y[count - count % 32 + j] = rest[j];
}

template <PairOp kOp>
void Run(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
         int64_t count) {
  const Combination<kOp> combine(params);
  const Operand operand1 = LoadOperand(params.type, params.input1_zero_point);
  const Operand operand2 = LoadOperand(params.type, params.input2_zero_point);
  const Bytes256 to_bytes = LoadBytes(params.output_zero_point, params.clamp);
  ForEachBlock(x1, x2, y, count, [&](const uint8_t* from1, const uint8_t* from2) {
    __m256i v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      v[j] = combine(Widen(from1 + 8 * j, operand1), Widen(from2 + 8 * j, operand2));
    }
    return ToBytes(v[0], v[1], v[2], v[3], to_bytes);
  });
}

// MAXIMUM and MINIMUM.
template <typename Select>
void RunSelect(const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count, Select select) {
  ForEachBlock(x1, x2, y, count, [&](const uint8_t* from1, const uint8_t* from2) {
    return select(Load256(from1), Load256(from2));
  });
}

}  // namespace

void CombinePairsAvx2(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                      int64_t count) {
  if (!IsVectorizable(params)) return CombinePairsReference(params, x1, x2, y, count);
  const bool is_signed = params.type == ByteType::kInt8;
  switch (params.op) {
    case PairOp::kAdd:
      return Run<PairOp::kAdd>(params, x1, x2, y, count);
    case PairOp::kSubtract:
      return Run<PairOp::kSubtract>(params, x1, x2, y, count);
    case PairOp::kSquaredDifference:
      return Run<PairOp::kSquaredDifference>(params, x1, x2, y, count);
    case PairOp::kMultiply:
      return Run<PairOp::kMultiply>(params, x1, x2, y, count);
    case PairOp::kPrelu:
      return Run<PairOp::kPrelu>(params, x1, x2, y, count);
    case PairOp::kMaximum:
      return RunSelect(x1, x2, y, count, [=](__m256i a, __m256i b) {
        return is_signed ? _mm256_max_epi8(a, b) : _mm256_max_epu8(a, b);
      });
    case PairOp::kMinimum:
      return RunSelect(x1, x2, y, count, [=](__m256i a, __m256i b) {
        return is_signed ? _mm256_min_epi8(a, b) : _mm256_min_epu8(a, b);
      });
  }
}

}  // namespace atollrt
