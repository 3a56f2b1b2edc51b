// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/peak_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace atollcmd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kIterations = 20000;
constexpr int kChains = 12;  // more than latency times throughput

#if defined(__x86_64__)
// The empty asm statements keep the compiler from seeing that the sums are regular.
[[gnu::target("avx512f,avx512bw,avx512vnni")]] void LoopAvx512Vnni() {
  __m512i sum[kChains] = {};
  const __m512i a = _mm512_set1_epi8(1);
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      sum[c] = _mm512_dpbusd_epi32(sum[c], a, a);
      asm volatile("" : "+v"(sum[c]));
    }
  }
}

[[gnu::target("avxvnni")]] void LoopAvxVnni() {
  __m256i sum[kChains] = {};
  const __m256i a = _mm256_set1_epi8(1);
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      sum[c] = _mm256_dpbusd_avx_epi32(sum[c], a, a);
      asm volatile("" : "+x"(sum[c]));
    }
  }
}

[[gnu::target("avx512vl,avx512vnni")]] void LoopAvx512Vnni256() {
  __m256i sum[kChains] = {};
  const __m256i a = _mm256_set1_epi8(1);
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      sum[c] = _mm256_dpbusd_epi32(sum[c], a, a);
      asm volatile("" : "+v"(sum[c]));
    }
  }
}

[[gnu::target("avx2")]] void LoopAvx2() {
  __m256i sum[kChains] = {};
  __m256i a = _mm256_set1_epi16(1);
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      asm volatile("" : "+x"(a));
      sum[c] = _mm256_add_epi32(sum[c], _mm256_madd_epi16(a, a));
      asm volatile("" : "+x"(sum[c]));
    }
  }
}
#elif defined(__aarch64__)
// In assembly, as clang 14 has these intrinsics only where everything may use such instructions.
#if defined(__clang__)
#define ATOLL_PEAK_TARGET(extension) gnu::target(extension)
#else
#define ATOLL_PEAK_TARGET(extension) gnu::target("arch=armv8.2-a+" extension)
#endif
[[ATOLL_PEAK_TARGET("i8mm")]] void LoopNeonI8mm() {
  int32x4_t sum[kChains] = {};
  const int8x16_t a = vdupq_n_s8(1);
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      asm volatile("smmla %0.4s, %1.16b, %1.16b" : "+w"(sum[c]) : "w"(a));
    }
  }
}

[[ATOLL_PEAK_TARGET("dotprod")]] void LoopNeonDotprod() {
  int32x4_t sum[kChains] = {};
  const int8x16_t a = vdupq_n_s8(1);
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      asm volatile("sdot %0.4s, %1.16b, %1.16b" : "+w"(sum[c]) : "w"(a));
    }
  }
}
#undef ATOLL_PEAK_TARGET

void LoopNeon() {
  int32x4_t sum[kChains] = {};
  int16x8_t product[kChains];
  int8x8_t a = vdup_n_s8(1);
  for (int i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      product[c] = vmull_s8(a, a);
      asm volatile("" : "+w"(product[c]), "+w"(a));
    }
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      product[c] = vmlal_s8(product[c], a, a);
      asm volatile("" : "+w"(product[c]), "+w"(a));
    }
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      sum[c] = vpadalq_s16(sum[c], product[c]);
      asm volatile("" : "+w"(sum[c]));
    }
  }
}
#endif

double MacsPerSecond(void (*loop)(), int macs_per_instruction) {
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const Clock::time_point start = Clock::now();
    loop();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return double{kIterations} * kChains * macs_per_instruction / best;
}

}  // namespace

double PeakMacsPerSecond([[maybe_unused]] std::string_view kernels) {
#if defined(__x86_64__)
  if (kernels == "avx512vnni") return MacsPerSecond(LoopAvx512Vnni, 64);
  if (kernels == "avxvnni") return MacsPerSecond(LoopAvxVnni, 32);
  if (kernels == "avx512vnni256") return MacsPerSecond(LoopAvx512Vnni256, 32);
  if (kernels == "avx2") return MacsPerSecond(LoopAvx2, 16);
#elif defined(__aarch64__)
  if (kernels == "neon_i8mm") return MacsPerSecond(LoopNeonI8mm, 32);
  if (kernels == "neon_dotprod") return MacsPerSecond(LoopNeonDotprod, 16);
  if (kernels == "neon") return MacsPerSecond(LoopNeon, 16);
#endif
  return 0;
}

}  // namespace atollcmd
