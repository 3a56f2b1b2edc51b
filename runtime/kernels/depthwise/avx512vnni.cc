// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseAvx512Vnni: cells of four taps of one byte, so that one VPDPBUSD adds four products for
// each of 16 channels. It wants unsigned activations, hence int8 ones are moved by 128, and signed
// weights.
#include "runtime/kernels/depthwise/cells.h"

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
    const __mmask16 mask = LowBytes16(left);
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

struct ByteSum {
  static __m512i Add(__m512i sums, __m512i cell, __m512i weight) {
    return _mm512_dpbusd_epi32(sums, cell, weight);
  }
};

// Filters of three columns, from registers.
constexpr int kColumns = 3;

// One block of 16 channels.
struct RowsArgs {
  const DepthwiseRowsArgs* all;
  int32_t line, lines;  // the first, and how many: 1 or 2
  int32_t block;
  int32_t channel;   // from first_channel
  int32_t channels;  // 16, or what is left
  bool is_split;     // some weights have two parts
};

// The weights of one line; those of the second parts are zeros unless the block is split.
struct LineWeights {
  __m512i part[2][kColumns];
};

inline LineWeights LoadWeights(const DepthwiseBlock& block) {
  LineWeights weights;
#pragma GCC unroll 3
  for (int c = 0; c < kColumns; ++c) {
    weights.part[0][c] = _mm512_load_si512(block.weights + c * kDepthwiseCellBytes);
    weights.part[1][c] = _mm512_setzero_si512();
  }
  for (int64_t g = kColumns; g < block.tap_groups; ++g) {
    const __m512i weight = _mm512_load_si512(block.weights + g * kDepthwiseCellBytes);
#pragma GCC unroll 3
    for (int c = 0; c < kColumns; ++c) {
      if (block.offsets[g] == c * kDepthwiseCellBytes) weights.part[1][c] = weight;
    }
  }
  return weights;
}

// 16 channels, or fewer, of the first `count` of kPixels pixels.
inline void StoreSome(__m512i bytes, __mmask16 mask, uint8_t* to, int64_t stride, int32_t count) {
  _mm_mask_storeu_epi8(to, mask, _mm512_castsi512_si128(bytes));
  if (count > 1) _mm_mask_storeu_epi8(to + stride, mask, _mm512_extracti32x4_epi32(bytes, 1));
  if (count > 2) _mm_mask_storeu_epi8(to + 2 * stride, mask, _mm512_extracti32x4_epi32(bytes, 2));
}

// The columns of the input whose 16 bytes may be read in all rows: of the last channels, the last
// pixels of the image may have less.
inline int64_t SafeColumns(const RowsArgs& block) {
  const DepthwiseRowsArgs& args = *block.all;
  int64_t columns = args.input_w;
  for (int t = 0; t < kTaps; ++t) {
    const DepthwiseTap& tap = args.taps[t];
    const int64_t last = tap.end - tap.pixels - block.channel - 16;
    const int64_t safe = last < 0 ? 0 : last / tap.stride + 1;
    if (safe < columns) columns = safe;
  }
  return columns;
}

// Where the cells of a block come from.
struct CellSource {
  const uint8_t* row[kTaps];  // of column x
  int64_t x;                  // the next column that needs a cell
  int64_t step, input_w;
  const uint8_t* padding;
  __mmask16 mask;
  __m512i flip;

  // The cell of column x + i, all of whose bytes may be read.
  [[gnu::always_inline]] __m512i WholeCell(int i) const {
    __m128i tap[kTaps];
#pragma GCC unroll 4
    for (int t = 0; t < kTaps; ++t) {
      tap[t] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row[t] + i * step));
    }
    return InterleaveCell(tap, flip);
  }
  // The same, inside of the input or not.
  [[gnu::always_inline]] __m512i EdgeCell(int i) const {
    const bool is_inside = x + i >= 0 && x + i < input_w;
    __m128i tap[kTaps];
#pragma GCC unroll 4
    for (int t = 0; t < kTaps; ++t) {
      tap[t] = _mm_maskz_loadu_epi8(mask, is_inside ? row[t] + i * step : padding);
    }
    return InterleaveCell(tap, flip);
  }
  [[gnu::always_inline]] void Advance(int columns) {
    x += columns;
#pragma GCC unroll 4
    for (int t = 0; t < kTaps; ++t) row[t] += columns * step;
  }
};

inline CellSource SourceOf(const RowsArgs& block, int64_t x) {
  const DepthwiseRowsArgs& args = *block.all;
  CellSource source = {.row = {},
                       .x = x,
                       .step = args.taps[0].stride,
                       .input_w = args.input_w,
                       .padding = args.padding + block.channel,
                       .mask = LowBytes16(block.channels),
                       .flip = _mm512_set1_epi8(args.type == ByteType::kInt8 ? -128 : 0)};
#pragma GCC unroll 4
  for (int t = 0; t < kTaps; ++t) {
    source.row[t] = args.taps[t].pixels + block.channel + x * source.step;
  }
  return source;
}

// kPixels pixels of one line.
template <int kStride, bool kSplit>
[[gnu::always_inline]] inline void AddLine(const __m512i* cells, const LineWeights& weights,
                                           __m512i bias, __m512i sums[kPixels]) {
#pragma GCC unroll 4
  for (int p = 0; p < kPixels; ++p) {
    sums[p] = bias;
#pragma GCC unroll 3
    for (int c = 0; c < kColumns; ++c) {
      sums[p] = _mm512_dpbusd_epi32(sums[p], cells[p * kStride + c], weights.part[0][c]);
      if constexpr (kSplit) {
        sums[p] = _mm512_dpbusd_epi32(sums[p], cells[p * kStride + c], weights.part[1][c]);
      }
    }
  }
}

template <Epilogue kEpilogue, int kStride, int kLines, bool kSplit>
void RunRowsBlock(const RowsArgs& block) {
  constexpr int kCells = (kPixels - 1) * kStride + kColumns;
  constexpr int kKept = kColumns - kStride;  // cells that the next pixels need again
  constexpr int kNew = kCells - kKept;
  const DepthwiseRowsArgs& args = *block.all;
  const OutputColumns& columns = *args.columns;
  const int32_t channel = args.first_channel + block.channel;
  const Scale scale = LoadScale<kEpilogue>(columns, channel);
  const Bytes to_bytes = LoadBytes(columns.zero_point, columns.clamp);
  const __m512i bias = _mm512_load_si512(columns.bias + channel);
  const int64_t stride = args.output_stride;
  const int64_t safe_columns = SafeColumns(block);
  LineWeights weights[kLines];
  uint8_t* output[kLines];
#pragma GCC unroll 2
  for (int l = 0; l < kLines; ++l) {
    const int64_t line = block.line + l;
    weights[l] = LoadWeights(args.blocks[line * args.line_blocks + block.block]);
    output[l] = args.output + line * args.output_line_stride + channel;
  }
  CellSource source = SourceOf(block, kKept - int64_t{args.pad_left});
  __m512i cells[kCells];
#pragma GCC unroll 2
  for (int i = 0; i < kKept; ++i) cells[i] = source.EdgeCell(i - kKept);
  for (int32_t left = args.pixels; left > 0; left -= kPixels) {
    if (source.x >= 0 && source.x + kNew <= safe_columns) {
#pragma GCC unroll 8
      for (int i = 0; i < kNew; ++i) cells[kKept + i] = source.WholeCell(i);
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < kNew; ++i) cells[kKept + i] = source.EdgeCell(i);
    }
    source.Advance(kNew);
#pragma GCC unroll 2
    for (int l = 0; l < kLines; ++l) {
      __m512i sum[kPixels];
      AddLine<kStride, kSplit>(cells, weights[l], bias, sum);
      const __m512i bytes =
          ToBytes(Rescale<kEpilogue>(sum[0], scale), Rescale<kEpilogue>(sum[1], scale),
                  Rescale<kEpilogue>(sum[2], scale), Rescale<kEpilogue>(sum[3], scale), to_bytes);
      if (left >= kPixels) {
        uint8_t* const to[kPixels] = {output[l], output[l] + stride, output[l] + 2 * stride,
                                      output[l] + 3 * stride};
        StoreQuarters(bytes, source.mask, to);
        output[l] += kPixels * stride;
      } else {
        StoreSome(bytes, source.mask, output[l], stride, left);
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < kKept; ++i) cells[i] = cells[kCells - kKept + i];
  }
}

template <Epilogue kEpilogue, int kStride, int kLines>
void RunRowsSplit(const RowsArgs& block) {
  if (block.is_split || kEpilogue == Epilogue::kWide) {  // which is rare, and need not be fast
    RunRowsBlock<kEpilogue, kStride, kLines, true>(block);
  } else if constexpr (kEpilogue != Epilogue::kWide) {
    RunRowsBlock<kEpilogue, kStride, kLines, false>(block);
  }
}

template <Epilogue kEpilogue>
void RunRowsOf(const RowsArgs& block) {
  if (block.all->stride_w == 2) {
    RunRowsSplit<kEpilogue, 2, 1>(block);
  } else {
    block.lines == 1 ? RunRowsSplit<kEpilogue, 1, 1>(block) : RunRowsSplit<kEpilogue, 1, 2>(block);
  }
}

void RunRows(const DepthwiseRowsArgs& args) {
  // With a stride of 2 there are hardly ever two lines, so there is no code for both at once.
  const int32_t lines = args.stride_w == 2 ? 1 : args.lines;
  for (int32_t line = 0; line < args.lines; line += lines) {
    for (int32_t b = 0; b * kDepthwiseBlock < args.channels; ++b) {
      const int32_t left = args.channels - b * kDepthwiseBlock;
      RowsArgs block = {&args,
                        line,
                        lines,
                        b,
                        b * kDepthwiseBlock,
                        left < kDepthwiseBlock ? left : kDepthwiseBlock,
                        false};
      for (int32_t l = line; l < line + lines; ++l) {
        if (args.blocks[l * args.line_blocks + b].tap_groups > kColumns) block.is_split = true;
      }
      WithEpilogue<1>(*args.columns, args.first_channel + block.channel, [&]<Epilogue kEpilogue>() {
        if constexpr (kEpilogue != Epilogue::kDouble) RunRowsOf<kEpilogue>(block);
      });
    }
  }
}

}  // namespace

const DepthwiseKernel DepthwiseAvx512Vnni = {
    .name = "DepthwiseAvx512Vnni",
    .taps_per_cell = kTaps,
    .element_bytes = 1,
    .int8_input_offset = 128,
    .fit = FitFloatColumnAvx2,
    .interleave = Interleave,
    .run = Run<X86Products<ByteSum>>,
    .run_rows = RunRows,
    .rows_take_sums = true,
};

}  // namespace atollrt
