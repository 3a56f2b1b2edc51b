// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseAvx2: cells of two taps of int16, so that one VPMADDWD adds two products for each of 8
// channels, exactly: int8 activations are moved by 128, and weights less their zero point need nine
// bits.
#include "runtime/kernels/depthwise/cells256.h"

namespace atollrt {
namespace {

constexpr int32_t kTaps = 2;

void Interleave(const InterleaveArgs& args) {
  const __m128i flip = _mm_set1_epi8(args.type == ByteType::kInt8 ? -128 : 0);
  for (int32_t c = 0; c < args.channels; c += kDepthwiseBlock) {
    const uint8_t* source0 = args.taps[0].pixels + c;
    const uint8_t* source1 = args.taps[1].pixels + c;
    uint8_t* cell = args.cells + c / kDepthwiseBlock * args.block_stride;
    for (int32_t p = 0; p < args.pixels; ++p, cell += kDepthwiseCellBytes) {
      const __m128i tap0 =
          _mm_xor_si128(reinterpret_cast<__m128i>(Load16Before(source0, args.taps[0].end)), flip);
      const __m128i tap1 =
          _mm_xor_si128(reinterpret_cast<__m128i>(Load16Before(source1, args.taps[1].end)), flip);
      source0 += args.taps[0].stride;
      source1 += args.taps[1].stride;
      __m256i* to = reinterpret_cast<__m256i*>(cell);
      _mm256_store_si256(to, _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(tap0, tap1)));
      _mm256_store_si256(to + 1, _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(tap0, tap1)));
    }
  }
}

struct WordSum {
  static constexpr int kCells = 2;
  static void Make(const __m128i taps[kRows], __m128i flip, __m256i cells[kCells]) {
#pragma GCC unroll 2
    for (int i = 0; i < kCells; ++i) {
      const __m128i pairs = _mm_unpacklo_epi8(taps[kTaps * i], taps[kTaps * i + 1]);
      cells[i] = _mm256_cvtepu8_epi16(_mm_xor_si128(pairs, flip));
    }
  }
  static __m256i Add(__m256i sums, __m256i cell, __m256i weight) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(cell, weight));
  }
};

}  // namespace

const DepthwiseKernel DepthwiseAvx2 = {
    .name = "DepthwiseAvx2",
    .taps_per_cell = kTaps,
    .element_bytes = 2,
    .int8_input_offset = 128,
    .fit = FitFloatColumnAvx2,
    .interleave = Interleave,
    .run = Run256<WordSum>,
    .run_rows = RunRows256<WordSum>,
};

}  // namespace atollrt
