// SPDX-License-Identifier: Apache-2.0
//
// GemmAvx512Vnni256: the code of GemmAvxVnni where there is only the encoding of AVX-512, for
// libatoll-core, and to test it there.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/gemm/vnni256.h"

namespace atollrt {
namespace {

struct Avx512Encoding {
  static __m256i Dpbusd(__m256i sums, __m256i lhs, __m256i rhs) {
    return _mm256_dpbusd_epi32(sums, lhs, rhs);
  }
};

}  // namespace

const GemmKernel GemmAvx512Vnni256 = Vnni256Gemm<Avx512Encoding>("GemmAvx512Vnni256");

}  // namespace atollrt
