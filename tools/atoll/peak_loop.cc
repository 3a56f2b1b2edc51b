// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/peak_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
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
  if (kernels == "avx2") return MacsPerSecond(LoopAvx2, 16);
#endif
  return 0;
}

}  // namespace atollcmd
