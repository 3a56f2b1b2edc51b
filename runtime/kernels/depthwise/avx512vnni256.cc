// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseAvx512Vnni256: the code of DepthwiseAvxVnni where there is only the encoding of AVX-512,
// for libatoll-core, and to test it there.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/depthwise/vnni256.h"

namespace atollrt {
namespace {

struct Avx512Encoding {
  static __m256i Dpbusd(__m256i sums, __m256i cell, __m256i weight) {
    return _mm256_dpbusd_epi32(sums, cell, weight);
  }
};

}  // namespace

const DepthwiseKernel DepthwiseAvx512Vnni256 =
    Vnni256Depthwise<Avx512Encoding>("DepthwiseAvx512Vnni256");

}  // namespace atollrt
