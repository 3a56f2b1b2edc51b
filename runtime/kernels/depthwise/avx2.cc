// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseAvx2: cells of two taps of int16, so that one VPMADDWD adds two products for each of 8
// channels, exactly: activations need nine bits at most, and so do weights minus their zero point.
#include "runtime/kernels/depthwise/cells256.h"

namespace atollrt {
namespace {

constexpr int32_t kTaps = 2;

template <ByteType kType>
void InterleaveBlocks(const InterleaveArgs& args) {
  const auto widen = [](__m128i bytes) {
    return kType == ByteType::kInt8 ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
  };
  for (int32_t c = 0; c < args.channels; c += kDepthwiseBlock) {
    const uint8_t* source0 = args.taps[0].pixels + c;
    const uint8_t* source1 = args.taps[1].pixels + c;
    uint8_t* cell = args.cells + c / kDepthwiseBlock * args.block_stride;
    for (int32_t p = 0; p < args.pixels; ++p, cell += kDepthwiseCellBytes) {
      const __m128i tap0 = reinterpret_cast<__m128i>(Load16Before(source0, args.taps[0].end));
      const __m128i tap1 = reinterpret_cast<__m128i>(Load16Before(source1, args.taps[1].end));
      source0 += args.taps[0].stride;
      source1 += args.taps[1].stride;
      __m256i* to = reinterpret_cast<__m256i*>(cell);
      _mm256_store_si256(to, widen(_mm_unpacklo_epi8(tap0, tap1)));
      _mm256_store_si256(to + 1, widen(_mm_unpackhi_epi8(tap0, tap1)));
    }
  }
}

void Interleave(const InterleaveArgs& args) {
  (args.type == ByteType::kInt8 ? InterleaveBlocks<ByteType::kInt8>
                                : InterleaveBlocks<ByteType::kUInt8>)(args);
}

struct WordSum {
  static __m256i Add(__m256i sums, __m256i cell, __m256i weight) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(cell, weight));
  }
};

}  // namespace

const DepthwiseKernel DepthwiseAvx2 = {
    .name = "DepthwiseAvx2",
    .taps_per_cell = kTaps,
    .element_bytes = 2,
    .fit = FitFloatColumnAvx2,
    .interleave = Interleave,
    .run = Run256<WordSum, 6>,
    .run_rows = nullptr,
};

}  // namespace atollrt
