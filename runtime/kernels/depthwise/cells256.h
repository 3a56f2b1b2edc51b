// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolution on 256-bit registers, for inclusion by ISA files only, which say how cells
// are multiplied. `Sum` is a class with Add(sums, cell, weight), which adds the products of all
// taps of 8 channels. The sums of a part of a line wait in memory, and become bytes together.
//
// By rows, cells are made in registers, of 8 channels of four rows of one column; that is what
//   kCells                     vectors are
//   Make(taps, flip, cells)    makes, of the low 8 bytes of each of taps[4]
#pragma once

#include "runtime/kernels/depthwise/cells.h"
#include "runtime/kernels/quantization/store_sums256.h"

namespace atollrt {
namespace {

constexpr int32_t kHeldPixels = 32;
constexpr int64_t kHalfCellBytes = kDepthwiseCellBytes / 2;  // of 8 channels

// The sums of 8 channels of `pixels` pixels, 16 apart.
template <typename Sum>
void SumHalf(const DepthwiseBlock& block, const uint8_t* cells, int64_t pixel_step,
             const int32_t* bias, int32_t pixels, int32_t* sums) {
  const __m256i first = LoadVector(bias);
  constexpr int kAtOnce = 4;
  for (int32_t p = 0; p < pixels; p += kAtOnce) {
    // Past the end, the last pixel is computed again.
    const uint8_t* from[kAtOnce];
    __m256i sum[kAtOnce];
#pragma GCC unroll 4
    for (int i = 0; i < kAtOnce; ++i) {
      from[i] = cells + (p + i < pixels ? p + i : pixels - 1) * pixel_step;
      sum[i] = first;
    }
    for (int64_t g = 0; g < block.tap_groups; ++g) {
      const __m256i weight = LoadVector(block.weights + g * kDepthwiseCellBytes);
      const int64_t offset = block.offsets[g];
#pragma GCC unroll 4
      for (int i = 0; i < kAtOnce; ++i) {
        sum[i] = Sum::Add(sum[i], LoadVector(from[i] + offset), weight);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kAtOnce; ++i) StoreVector(sums + OutputColumns::kBlock * (p + i), sum[i]);
  }
}

template <typename Sum>
void Run256(const DepthwiseArgs& args) {
  alignas(32) int32_t sums[kHeldPixels * kDepthwiseBlock];
  for (int32_t c = 0; c < args.channels; c += kDepthwiseBlock) {
    const DepthwiseBlock& block = args.blocks[c / kDepthwiseBlock];
    const int32_t left = args.channels - c;
    const int32_t channels = left < kDepthwiseBlock ? left : kDepthwiseBlock;
    const int32_t channel = args.first_channel + c;
    const uint8_t* cells = args.cells + c / kDepthwiseBlock * args.block_stride;
    for (int32_t pixel = 0; pixel < args.pixels; pixel += kHeldPixels) {
      const int32_t rest = args.pixels - pixel;
      const int32_t pixels = rest < kHeldPixels ? rest : kHeldPixels;
      for (int32_t half = 0; half * kLanes < channels; ++half) {
        DepthwiseBlock part = block;
        part.weights += half * kHalfCellBytes;
        SumHalf<Sum>(part, cells + half * kHalfCellBytes, args.pixel_step,
                     args.columns->bias + channel + half * kLanes, pixels, sums + half * kLanes);
      }
      StoreSums256(*args.columns, {.accumulators = sums,
                                   .accumulator_stride = kDepthwiseBlock,
                                   .rows = pixels,
                                   .first = channel,
                                   .count = channels,
                                   .output = args.output + pixel * args.output_stride + channel,
                                   .output_stride = args.output_stride});
      cells += pixels * args.pixel_step;
    }
  }
}

// ---- By rows ------------------------------------------------------------------------------------

constexpr int kRows = kMaxTapsPerCell;
constexpr int kColumns = 3;  // of a filter
constexpr int32_t kHeldSums = 64;

// 8 channels, or the rest of them, of the rows under a line of output or two.
struct RowSource {
  const uint8_t* row[kRows];  // of column 0
  int64_t stride = 0;         // between columns
  int64_t safe_columns = 0;   // of which 8 bytes may be read in all rows
  int64_t columns = 0;
  __m128i flip;
  // What is read of the others, at most 8, as 8 bytes before the end are left of the last; behind
  // them, what is outside of the input.
  static constexpr int kOutside = 8;
  uint64_t edge[kOutside + 1][kRows];
};

template <typename Sum>
[[gnu::always_inline]] inline void LoadCells(const RowSource& source, int64_t x,
                                             __m256i cells[Sum::kCells]) {
  const auto load = [](const void* from) {
    return _mm_loadl_epi64(static_cast<const __m128i*>(from));
  };
  __m128i taps[kRows];
  if (static_cast<uint64_t>(x) < static_cast<uint64_t>(source.safe_columns)) [[likely]] {
    const int64_t offset = x * source.stride;
#pragma GCC unroll 4
    for (int t = 0; t < kRows; ++t) taps[t] = load(source.row[t] + offset);
  } else {
    const bool is_inside = x >= 0 && x < source.columns;
    const uint64_t* const edge =
        source.edge[is_inside ? x - source.safe_columns : RowSource::kOutside];
#pragma GCC unroll 4
    for (int t = 0; t < kRows; ++t) taps[t] = load(edge + t);
  }
  Sum::Make(taps, source.flip, cells);
}

// With the products of one column of the filter.
template <typename Sum>
[[gnu::always_inline]] inline __m256i AddColumn(__m256i sum, const __m256i cells[Sum::kCells],
                                                const __m256i weights[Sum::kCells]) {
#pragma GCC unroll 2
  for (int i = 0; i < Sum::kCells; ++i) sum = Sum::Add(sum, cells[i], weights[i]);
  return sum;
}

// The sums of `pixels` pixels of kLines lines, the first of which begins at column x. Those of a
// pixel are kDepthwiseBlock apart from the next one's, those of lines line_sums.
template <typename Sum, int kStride, int kLines>
[[gnu::noinline]] void SumRows(const RowSource& source,
                               const __m256i (*weights)[kColumns][Sum::kCells], __m256i bias,
                               int64_t x, int32_t pixels, int32_t* sums, int64_t line_sums) {
  __m256i cells[Sum::kCells];
  // Sums that still want the last column, and the last two.
  __m256i last[kLines], last_two[kLines];
  LoadCells<Sum>(source, x++, cells);
#pragma GCC unroll 2
  for (int l = 0; l < kLines; ++l) last_two[l] = AddColumn<Sum>(bias, cells, weights[l][0]);
  if constexpr (kStride == 1) {
    LoadCells<Sum>(source, x++, cells);
#pragma GCC unroll 2
    for (int l = 0; l < kLines; ++l) {
      last[l] = AddColumn<Sum>(last_two[l], cells, weights[l][1]);
      last_two[l] = AddColumn<Sum>(bias, cells, weights[l][0]);
    }
  }
  for (int32_t p = 0; p < pixels; ++p) {
    if constexpr (kStride == 2) {
      LoadCells<Sum>(source, x++, cells);
#pragma GCC unroll 2
      for (int l = 0; l < kLines; ++l) {
        last[l] = AddColumn<Sum>(last_two[l], cells, weights[l][1]);
      }
    }
    LoadCells<Sum>(source, x++, cells);
#pragma GCC unroll 2
    for (int l = 0; l < kLines; ++l) {
      StoreVector(sums + l * line_sums, AddColumn<Sum>(last[l], cells, weights[l][2]));
      if constexpr (kStride == 1) {
        last[l] = AddColumn<Sum>(last_two[l], cells, weights[l][1]);
      }
      last_two[l] = AddColumn<Sum>(bias, cells, weights[l][0]);
    }
    sums += kDepthwiseBlock;
  }
}

// 8 channels of a block, `byte` of each cell of weights.
template <typename Sum>
void LoadWeights(const DepthwiseBlock& block, int64_t byte,
                 __m256i (&weights)[kColumns][Sum::kCells]) {
#pragma GCC unroll 1
  for (int c = 0; c < kColumns; ++c) {
    for (int i = 0; i < Sum::kCells; ++i) {
      weights[c][i] = LoadVector(block.weights + byte + (i * kColumns + c) * kDepthwiseCellBytes);
    }
  }
}

// A part of a line, or of two, of one block.
struct RowsPart {
  int32_t block, half;
  int32_t pixel, pixels;
  int64_t line_sums;
};

[[gnu::noinline]] void SetSource(const DepthwiseRowsArgs& args, int32_t channel,
                                 RowSource* source) {
  source->stride = args.taps[0].stride;
  source->safe_columns = source->columns = args.input_w;
  source->flip = _mm_set1_epi8(args.type == ByteType::kInt8 ? -128 : 0);
  uint64_t outside;
  __builtin_memcpy(&outside, args.padding + channel, sizeof(outside));
#pragma GCC unroll 1
  for (int t = 0; t < kRows; ++t) {
    source->row[t] = args.taps[t].pixels + channel;
    source->edge[RowSource::kOutside][t] = outside;
    const int64_t last = args.taps[t].end - source->row[t] - kLanes;
    if (last >= (source->safe_columns - 1) * source->stride) continue;
    source->safe_columns = last < 0 ? 0 : last / source->stride + 1;
  }
  const int32_t left = args.channels - channel;
  for (int64_t x = source->safe_columns; x < source->columns; ++x) {
    uint64_t* const edge = source->edge[x - source->safe_columns];
#pragma GCC unroll 1
    for (int t = 0; t < kRows; ++t) {
      edge[t] = LoadSome8(source->row[t] + x * source->stride, left);
    }
  }
}

template <typename Sum>
[[gnu::noinline]] void SumPart(const DepthwiseRowsArgs& args, const RowsPart& part, int32_t* sums) {
  const int32_t channel = part.block * kDepthwiseBlock + part.half * kLanes;
  RowSource source;
  SetSource(args, channel, &source);
  __m256i weights[2][kColumns][Sum::kCells];
#pragma GCC unroll 1
  for (int l = 0; l < args.lines; ++l) {
    LoadWeights<Sum>(args.blocks[l * args.line_blocks + part.block], part.half * kHalfCellBytes,
                     weights[l]);
  }
  const __m256i bias = LoadVector(args.columns->bias + args.first_channel + channel);
  const int64_t x = int64_t{part.pixel} * args.stride_w - args.pad_left;
  sums += part.half * kLanes;
  if (args.stride_w == 1 && args.lines == 2) {
    return SumRows<Sum, 1, 2>(source, weights, bias, x, part.pixels, sums, part.line_sums);
  }
  // There are hardly ever two beside a stride of 2.
#pragma GCC unroll 1
  for (int l = 0; l < args.lines; ++l) {
    const auto sum = args.stride_w == 1 ? SumRows<Sum, 1, 1> : SumRows<Sum, 2, 1>;
    sum(source, weights + l, bias, x, part.pixels, sums + l * part.line_sums, part.line_sums);
  }
}

template <typename Sum>
void RunRows256(const DepthwiseRowsArgs& args) {
  alignas(32) int32_t sums[kHeldSums * kDepthwiseBlock];
  const bool is_whole = args.lines * args.pixels <= kHeldSums;
  const int32_t held = is_whole ? args.pixels : kHeldSums / args.lines;
  for (int32_t b = 0; b * kDepthwiseBlock < args.channels; ++b) {
    const int32_t left = args.channels - b * kDepthwiseBlock;
    const int32_t channels = left < kDepthwiseBlock ? left : kDepthwiseBlock;
    const int32_t channel = args.first_channel + b * kDepthwiseBlock;
    RowsPart part = {b, 0, 0, 0, 0};
    for (; part.pixel < args.pixels; part.pixel += held) {
      const int32_t rest = args.pixels - part.pixel;
      part.pixels = rest < held ? rest : held;
      part.line_sums = int64_t{part.pixels} * kDepthwiseBlock;
      for (part.half = 0; part.half * kLanes < channels; ++part.half) {
        SumPart<Sum>(args, part, sums);
      }
      RequantizeArgs store = {.accumulators = sums,
                              .accumulator_stride = kDepthwiseBlock,
                              .rows = args.lines * part.pixels,
                              .first = channel,
                              .count = channels,
                              .output = args.output + part.pixel * args.output_stride +
                                        b * kDepthwiseBlock + args.first_channel,
                              .output_stride = args.output_stride};
      // Whole lines follow each other.
      const int32_t calls = is_whole ? 1 : args.lines;
      store.rows /= calls;
      for (int32_t i = 0; i < calls; ++i) {
        StoreSums256(*args.columns, store);
        store.accumulators += part.line_sums;
        store.output += args.output_line_stride;
      }
    }
  }
}

#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
// Cells of four taps of one byte: one VPDPBUSD adds four products for each of 8 channels. It wants
// unsigned activations, hence int8 ones are moved by 128, and signed weights.
struct ByteSum {
  static constexpr int kCells = 1;
  static void Make(const __m128i taps[kRows], __m128i flip, __m256i cells[kCells]) {
    const __m128i ab = _mm_xor_si128(_mm_unpacklo_epi8(taps[0], taps[1]), flip);
    const __m128i cd = _mm_xor_si128(_mm_unpacklo_epi8(taps[2], taps[3]), flip);
    cells[0] = _mm256_set_m128i(_mm_unpackhi_epi16(ab, cd), _mm_unpacklo_epi16(ab, cd));
  }
  static __m256i Add(__m256i sums, __m256i cell, __m256i weight) {
    return Dpbusd256(sums, cell, weight);
  }
};

constexpr DepthwiseKernel Vnni256Depthwise(const char* name) {
  return {.name = name,
          .taps_per_cell = 4,
          .element_bytes = 1,
          .int8_input_offset = 128,
          .fit = FitFloatColumnAvx2,
          .interleave = InterleaveFourTaps<ByteType::kInt8>,
          .run = Run256<ByteSum>,
          .run_rows = RunRows256<ByteSum>};
}
#endif

}  // namespace
}  // namespace atollrt
