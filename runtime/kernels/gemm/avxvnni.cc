// SPDX-License-Identifier: Apache-2.0
//
// GemmAvxVnni: vnni256.h for CPUs without AVX-512, such as Alder Lake.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/gemm/vnni256.h"

namespace atollrt {
namespace {

struct AvxEncoding {
  static __m256i Dpbusd(__m256i sums, __m256i lhs, __m256i rhs) {
    return _mm256_dpbusd_avx_epi32(sums, lhs, rhs);
  }
};

}  // namespace

const GemmKernel GemmAvxVnni = Vnni256Gemm<AvxEncoding>("GemmAvxVnni");

}  // namespace atollrt
