// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseAvx512Vnni: cells of four taps of one byte, so that one VPDPBUSD adds four products for
// each of 16 channels. It wants unsigned activations, hence int8 ones are moved by 128, and signed
// weights. uint8 weights minus their zero point may need nine bits: blocks where they do keep
// w - 128 and add args.terms times the sum of the activations.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/depthwise_conv/depthwise_conv.h"
#include "runtime/kernels/requantize_avx512.h"

namespace atollrt {
namespace {

constexpr int32_t kTaps = 4;
constexpr int32_t kPixels = 4;  // at a time; 4 * 16 output bytes fill a register

__m128i Load16(const uint8_t* from, __mmask16 mask) { return _mm_maskz_loadu_epi8(mask, from); }

// The four taps' 16 bytes to 16 channels' four bytes.
__m512i InterleaveCell(const __m128i tap[kTaps], __m512i flip) {
  // Masked broadcasts rather than insertions: they leave the shuffle unit alone.
  __m512i cell = _mm512_castsi128_si512(tap[0]);
  cell = _mm512_mask_broadcast_i32x4(cell, 0x00F0, tap[1]);
  cell = _mm512_mask_broadcast_i32x4(cell, 0x0F00, tap[2]);
  cell = _mm512_mask_broadcast_i32x4(cell, 0xF000, tap[3]);
  cell = _mm512_xor_si512(cell, flip);
  // First whole dwords, so that each lane has its four channels of every tap, then the bytes.
  const __m512i dwords = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(dwords, cell), bytes);
}

void Interleave(const InterleaveArgs& args) {
  const __m512i flip = _mm512_set1_epi8(args.type == ByteType::kInt8 ? -128 : 0);
  for (int32_t c = 0; c < args.channels; c += kDepthwiseBlock) {
    const int32_t left = args.channels - c;
    const __mmask16 mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
    const uint8_t* source[kTaps];
    for (int t = 0; t < kTaps; ++t) source[t] = args.taps[t].pixels + c;
    uint8_t* cell = args.cells + c / kDepthwiseBlock * args.block_stride;
    for (int32_t p = 0; p < args.pixels; ++p, cell += kDepthwiseCellBytes) {
      __m128i tap[kTaps];
#pragma GCC unroll 4
      for (int t = 0; t < kTaps; ++t) {
        tap[t] = left >= 16 ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(source[t]))
                            : Load16(source[t], mask);
        source[t] += args.taps[t].stride;
      }
      _mm512_store_si512(cell, InterleaveCell(tap, flip));
    }
  }
}

// One block of 16 channels over a row of output pixels.
struct BlockArgs {
  const DepthwiseArgs* all;
  const uint8_t* cells;
  const uint8_t* weights;
  int32_t term;
  int32_t channel;
  int32_t channels;
};

enum class Terms { kNone, kSums };

// Accumulators of output pixels whose first cells are given.
template <Terms kTerms>
inline void Accumulate(const BlockArgs& block, const uint8_t* const cells[kPixels], __m512i bias,
                       __m512i accumulators[kPixels]) {
  const DepthwiseArgs& args = *block.all;
  __m512i sums[kPixels];
#pragma GCC unroll 4
  for (int p = 0; p < kPixels; ++p) {
    accumulators[p] = bias;
    sums[p] = _mm512_setzero_si512();
  }
  for (int32_t g = 0; g < args.tap_groups; ++g) {
    const int64_t offset = args.offsets[g];
    const __m512i weight = _mm512_load_si512(block.weights + g * kDepthwiseCellBytes);
    const __m512i ones = _mm512_set1_epi32(static_cast<int32_t>(args.ones[g]));
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      const __m512i cell = _mm512_load_si512(cells[p] + offset);
      accumulators[p] = _mm512_dpbusd_epi32(accumulators[p], cell, weight);
      if constexpr (kTerms == Terms::kSums) sums[p] = _mm512_dpbusd_epi32(sums[p], cell, ones);
    }
  }
  if constexpr (kTerms == Terms::kSums) {
    const __m512i term = _mm512_set1_epi32(block.term);
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      accumulators[p] = _mm512_add_epi32(accumulators[p], _mm512_mullo_epi32(sums[p], term));
    }
  }
}

template <RequantizeMode kMode, Terms kTerms>
void RunBlock(const BlockArgs& block) {
  const DepthwiseArgs& args = *block.all;
  const OutputColumns& columns = *args.columns;
  const Scale512 scale = LoadScale<kMode>(columns, block.channel);
  const Bytes512 to_bytes = LoadBytes(columns.zero_point, columns.clamp);
  const __m512i bias = _mm512_load_si512(columns.bias + block.channel);
  const bool vectorizable = columns.vectorizable[block.channel / OutputColumns::kBlock] != 0;
  const __mmask16 mask =
      static_cast<__mmask16>(block.channels >= 16 ? 0xFFFF : (1 << block.channels) - 1);
  for (int32_t first = 0; first < args.pixels; first += kPixels) {
    // Past the end, the last pixel is computed again.
    int32_t pixel[kPixels];
    const uint8_t* cells[kPixels];
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      pixel[p] = first + p < args.pixels ? first + p : args.pixels - 1;
      cells[p] = block.cells + pixel[p] * args.pixel_step;
    }
    __m512i sum[kPixels];
    Accumulate<kTerms>(block, cells, bias, sum);
    uint8_t* const output = args.output + block.channel;
    if (!vectorizable) {
      alignas(64) int32_t plain[kPixels * 16];
      for (int p = 0; p < kPixels; ++p) _mm512_store_si512(plain + 16 * p, sum[p]);
      const int32_t rows = args.pixels - first < kPixels ? args.pixels - first : kPixels;
      RequantizePlain(columns, {plain, 16, rows, block.channel, block.channels,
                                output + first * args.output_stride, args.output_stride});
      continue;
    }
    const __m512i bytes =
        ToBytes(Rescale<kMode>(sum[0], scale), Rescale<kMode>(sum[1], scale),
                Rescale<kMode>(sum[2], scale), Rescale<kMode>(sum[3], scale), to_bytes);
    const __m128i part[kPixels] = {
        _mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
        _mm512_extracti32x4_epi32(bytes, 2), _mm512_extracti32x4_epi32(bytes, 3)};
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      uint8_t* to = output + pixel[p] * args.output_stride;
      if (block.channels == 16) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), part[p]);
      } else {
        _mm_mask_storeu_epi8(to, mask, part[p]);
      }
    }
  }
}

void Run(const DepthwiseArgs& args) {
  constexpr RequantizeMode kFixedPoint = RequantizeMode::kFixedPoint;
  constexpr RequantizeMode kDouble = RequantizeMode::kDouble;
  const bool fixed_point = args.columns->mode == kFixedPoint;
  for (int32_t b = 0; b * kDepthwiseBlock < args.channels; ++b) {
    const int32_t left = args.channels - b * kDepthwiseBlock;
    const BlockArgs block = {&args,
                             args.cells + b * args.block_stride,
                             args.weights + b * args.tap_groups * kDepthwiseCellBytes,
                             args.terms[b],
                             args.first_channel + b * kDepthwiseBlock,
                             left < kDepthwiseBlock ? left : kDepthwiseBlock};
    if (block.term == 0) {
      (fixed_point ? RunBlock<kFixedPoint, Terms::kNone> : RunBlock<kDouble, Terms::kNone>)(block);
    } else {
      (fixed_point ? RunBlock<kFixedPoint, Terms::kSums> : RunBlock<kDouble, Terms::kSums>)(block);
    }
  }
}

}  // namespace

const DepthwiseKernel DepthwiseAvx512Vnni = {
    .name = "DepthwiseAvx512Vnni",
    .taps_per_cell = kTaps,
    .element_bytes = 1,
    .int8_input_offset = 128,
    .interleave = Interleave,
    .run = Run,
};

}  // namespace atollrt
