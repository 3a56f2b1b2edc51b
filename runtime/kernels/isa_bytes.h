// SPDX-License-Identifier: Apache-2.0
//
// Bytes in registers, as the ISA files of several operators handle them, for inclusion by these
// only: everything is in an unnamed namespace, so no copy of it can end up in code for other CPUs.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace atollrt {
namespace {

typedef uint8_t Bytes16 __attribute__((vector_size(16)));

// 8 bytes, of which those from `count` on are not read and yield 0.
[[gnu::noinline]] inline uint64_t LoadSome8(const uint8_t* from, int64_t count) {
  uint64_t bytes = 0;
#pragma GCC unroll 1
  for (int64_t i = count < 8 ? count - 1 : 7; i >= 0; --i) bytes = bytes << 8 | from[i];
  return bytes;
}

// 16 bytes at `from`, of which those at or past `end` are not read and yield 0.
inline Bytes16 Load16Before(const uint8_t* from, const uint8_t* end) {
  Bytes16 bytes;
  if (end - from >= 16) {
    __builtin_memcpy(&bytes, from, sizeof(bytes));
    return bytes;
  }
  const uint64_t some[2] = {LoadSome8(from, end - from), LoadSome8(from + 8, end - from - 8)};
  __builtin_memcpy(&bytes, some, sizeof(bytes));
  return bytes;
}

#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
// VPDPBUSD on 256-bit registers, in the encoding of AVX or AVX-512: multiplies unsigned by signed
// bytes, four at a time, and adds the sum of the four products to an int32 that wraps: exact.
inline __m256i Dpbusd256(__m256i sums, __m256i unsigned_bytes, __m256i signed_bytes) {
#if defined(__AVXVNNI__)
  return _mm256_dpbusd_avx_epi32(sums, unsigned_bytes, signed_bytes);
#else
  return _mm256_dpbusd_epi32(sums, unsigned_bytes, signed_bytes);
#endif
}
#endif

}  // namespace
}  // namespace atollrt
