// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseAvxVnni: vnni256.h for CPUs without AVX-512, such as Alder Lake.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/depthwise/vnni256.h"

namespace atollrt {
namespace {

struct AvxEncoding {
  static __m256i Dpbusd(__m256i sums, __m256i cell, __m256i weight) {
    return _mm256_dpbusd_avx_epi32(sums, cell, weight);
  }
};

}  // namespace

const DepthwiseKernel DepthwiseAvxVnni = Vnni256Depthwise<AvxEncoding>("DepthwiseAvxVnni");

}  // namespace atollrt
