// SPDX-License-Identifier: Apache-2.0
//
// AddAvx2: 32 bytes at a time in four vectors of int32.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/add/add.h"
#include "runtime/kernels/requantize_avx2.h"

namespace atollrt {
namespace {

constexpr RequantizeMode kFixedPoint = RequantizeMode::kFixedPoint;

Scale256 Uniform(Multiplier m) {
  return FixedPointScale(_mm256_set1_epi32(m.value), _mm256_set1_epi32(-m.exponent));
}

// One of the inputs, on its way to a term of the sum.
struct Input {
  __m256i zero_point;
  Scale256 scale;
  bool is_half;
  __m128i shift;  // the left shift, one less if halved
};

Input LoadInput(int32_t zero_point, Multiplier multiplier, int32_t left_shift) {
  const bool is_half = IsHalf(multiplier);
  return {_mm256_set1_epi32(zero_point), Uniform(is_half ? Multiplier{0, -1} : multiplier), is_half,
          _mm_cvtsi32_si128(is_half ? left_shift - 1 : left_shift)};
}

template <ByteType kType>
inline __m256i Term(const uint8_t* from, const Input& input) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  const __m256i wide =
      kType == ByteType::kInt8 ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
  const __m256i shifted = _mm256_sll_epi32(_mm256_sub_epi32(wide, input.zero_point), input.shift);
  return input.is_half ? shifted : Rescale<kFixedPoint>(shifted, input.scale);
}

template <ByteType kType>
void Run(const AddParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count) {
  const Input input1 = LoadInput(params.input1_zero_point, params.input1, params.left_shift);
  const Input input2 = LoadInput(params.input2_zero_point, params.input2, params.left_shift);
  const Scale256 output = Uniform(params.output);
  const Bytes256 to_bytes = LoadBytes(params.output_zero_point, params.clamp);
  const bool subtract = params.kind == AddKind::kSubtract;
  const auto add32 = [&](const uint8_t* from1, const uint8_t* from2) {
    __m256i v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m256i a = Term<kType>(from1 + 8 * j, input1);
      const __m256i b = Term<kType>(from2 + 8 * j, input2);
      const __m256i sum = subtract ? _mm256_sub_epi32(a, b) : _mm256_add_epi32(a, b);
      v[j] = Rescale<kFixedPoint>(sum, output);
    }
    return ToBytes(v[0], v[1], v[2], v[3], to_bytes);
  };
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), add32(x1 + i, x2 + i));
  }
  if (i == count) return;
  alignas(32) uint8_t rest1[32] = {}, rest2[32] = {};
  for (int64_t j = 0; i + j < count; ++j) {
    rest1[j] = x1[i + j];
    rest2[j] = x2[i + j];
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(rest1), add32(rest1, rest2));
  for (int64_t j = 0; i + j < count; ++j) y[i + j] = rest1[j];
}

}  // namespace

void AddAvx2(const AddParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
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
