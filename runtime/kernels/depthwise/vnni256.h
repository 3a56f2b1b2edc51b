// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolution with VPDPBUSD on 256-bit registers, for inclusion by ISA files only.
// `Encoding` is a class with Dpbusd(sums, u, s), that instruction in AVX or AVX-512 encoding.
//
// Cells of four taps of one byte: one VPDPBUSD adds four products for each of 8 channels. It wants
// unsigned activations, hence int8 ones are moved by 128, and signed weights.
#pragma once

#include <immintrin.h>

#include "runtime/kernels/depthwise/cells256.h"

namespace atollrt {
namespace {

constexpr int32_t kTaps = 4;

template <typename Encoding>
struct ByteProducts {
  static __m256i Add(__m256i sums, __m256i cell, __m256i weight) {
    return Encoding::Dpbusd(sums, cell, weight);
  }
};

inline void Interleave(const InterleaveArgs& args) {
  const __m128i flip = _mm_set1_epi8(args.type == ByteType::kInt8 ? -128 : 0);
  for (int32_t c = 0; c < args.channels; c += kDepthwiseBlock) {
    const uint8_t* source[kTaps];
    for (int t = 0; t < kTaps; ++t) source[t] = args.taps[t].pixels + c;
    uint8_t* cell = args.cells + c / kDepthwiseBlock * args.block_stride;
    for (int32_t p = 0; p < args.pixels; ++p, cell += kDepthwiseCellBytes) {
      __m128i tap[kTaps];
#pragma GCC unroll 4
      for (int t = 0; t < kTaps; ++t) {
        tap[t] = _mm_xor_si128(Load16Before(source[t], args.taps[t].end), flip);
        source[t] += args.taps[t].stride;
      }
      // Pairs of taps, then pairs of pairs.
      const __m128i low01 = _mm_unpacklo_epi8(tap[0], tap[1]);
      const __m128i high01 = _mm_unpackhi_epi8(tap[0], tap[1]);
      const __m128i low23 = _mm_unpacklo_epi8(tap[2], tap[3]);
      const __m128i high23 = _mm_unpackhi_epi8(tap[2], tap[3]);
      __m128i* to = reinterpret_cast<__m128i*>(cell);
      _mm_store_si128(to, _mm_unpacklo_epi16(low01, low23));
      _mm_store_si128(to + 1, _mm_unpackhi_epi16(low01, low23));
      _mm_store_si128(to + 2, _mm_unpacklo_epi16(high01, high23));
      _mm_store_si128(to + 3, _mm_unpackhi_epi16(high01, high23));
    }
  }
}

template <typename Encoding>
constexpr DepthwiseKernel Vnni256Depthwise(const char* name) {
  return {.name = name,
          .taps_per_cell = kTaps,
          .element_bytes = 1,
          .int8_input_offset = 128,
          .interleave = Interleave,
          .run = Run<ByteProducts<Encoding>>,
          .run_rows = nullptr};
}

}  // namespace
}  // namespace atollrt
