// SPDX-License-Identifier: Apache-2.0
//
// AddAvx512Vnni: 64 bytes at a time in four vectors of int32. (It needs no VNNI, but no CPU
// without it has a level of its own here.)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/add/add.h"
#include "runtime/kernels/requantize_avx512.h"

namespace atollrt {
namespace {

constexpr RequantizeMode kFixedPoint = RequantizeMode::kFixedPoint;

Scale512 Uniform(Multiplier m) {
  return FixedPointScale(_mm512_set1_epi32(m.value), _mm512_set1_epi32(-m.exponent));
}

// One of the inputs, on its way to a term of the sum.
struct Input {
  __m512i zero_point;
  Scale512 scale;
  bool is_half;
  __m128i shift;  // the left shift, one less if halved
};

Input LoadInput(int32_t zero_point, Multiplier multiplier, int32_t left_shift) {
  const bool is_half = IsHalf(multiplier);
  return {_mm512_set1_epi32(zero_point), Uniform(is_half ? Multiplier{0, -1} : multiplier), is_half,
          _mm_cvtsi32_si128(is_half ? left_shift - 1 : left_shift)};
}

template <ByteType kType>
inline __m512i Term(__m128i bytes, const Input& input) {
  const __m512i wide =
      kType == ByteType::kInt8 ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
  const __m512i shifted = _mm512_sll_epi32(_mm512_sub_epi32(wide, input.zero_point), input.shift);
  return input.is_half ? shifted : Rescale<kFixedPoint>(shifted, input.scale);
}

template <ByteType kType>
void Run(const AddParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count) {
  const Input input1 = LoadInput(params.input1_zero_point, params.input1, params.left_shift);
  const Input input2 = LoadInput(params.input2_zero_point, params.input2, params.left_shift);
  const Scale512 output = Uniform(params.output);
  const Bytes512 to_bytes = LoadBytes(params.output_zero_point, params.clamp);
  const bool subtract = params.kind == AddKind::kSubtract;
  for (int64_t i = 0; i < count; i += 64) {
    const __mmask64 mask = count - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (count - i)) - 1;
    __m512i v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __mmask16 part = static_cast<__mmask16>(mask >> (16 * j));
      const __m512i a = Term<kType>(_mm_maskz_loadu_epi8(part, x1 + i + 16 * j), input1);
      const __m512i b = Term<kType>(_mm_maskz_loadu_epi8(part, x2 + i + 16 * j), input2);
      const __m512i sum = subtract ? _mm512_sub_epi32(a, b) : _mm512_add_epi32(a, b);
      v[j] = Rescale<kFixedPoint>(sum, output);
    }
    const __m512i bytes = ToBytes(v[0], v[1], v[2], v[3], to_bytes);
    if (count - i >= 64) {
      _mm512_storeu_si512(y + i, bytes);
    } else {
      _mm512_mask_storeu_epi8(y + i, mask, bytes);
    }
  }
}

}  // namespace

void AddAvx512Vnni(const AddParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                   int64_t count) {
  if (!IsVectorizable(params)) {
    ReferenceAdd(params, x1, x2, y, count);
  } else if (params.type == ByteType::kInt8) {
    Run<ByteType::kInt8>(params, x1, x2, y, count);
  } else {
    Run<ByteType::kUInt8>(params, x1, x2, y, count);
  }
}

}  // namespace atollrt
