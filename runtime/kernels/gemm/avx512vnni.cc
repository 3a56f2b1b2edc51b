// SPDX-License-Identifier: Apache-2.0
//
// GemmAvx512Vnni: VPDPBUSD multiplies unsigned by signed bytes, four at a time, and adds the sum
// of the four products, at most 4 * 255 * 128, to an int32 that wraps: exact. int8 activations are
// therefore moved by 128; weights are int8 already (gemm.h).
//
// The register tile is 14 x 32: 28 sums, two vectors of weights, one broadcast of activations. 28
// instructions hide their own latency many times over and cost 16 loads. 14 because the sides of
// feature maps are multiples of 7 more often than not.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/requantize_avx512.h"

namespace atollrt {
namespace {

constexpr int32_t kTileRows = 14;
constexpr int32_t kPanelColumns = 32;
constexpr int32_t kGroup = 4;

__mmask64 LowBytes(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

void CopyLhs(const CopyLhsArgs& args) {
  const __m512i flip = _mm512_set1_epi8(args.type == ByteType::kInt8 ? -128 : 0);
  const __mmask64 rest = LowBytes(args.count & 63);
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint8_t* source = args.source + r * args.source_stride;
    uint8_t* target = args.target + r * args.target_stride;
    int64_t i = 0;
    for (; i + 64 <= args.count; i += 64) {
      _mm512_storeu_si512(target + i, _mm512_xor_si512(_mm512_loadu_si512(source + i), flip));
    }
    if (i < args.count) {
      const __m512i last = _mm512_maskz_loadu_epi8(rest, source + i);
      _mm512_storeu_si512(target + i, _mm512_xor_si512(last, flip));
    }
  }
}

void RowTerms(const RowTermsArgs& args) {
  const __m512i ones = _mm512_set1_epi8(1);
  const __mmask64 rest = LowBytes(args.depth & 63);
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint8_t* row = args.lhs + r * args.lhs_stride;
    __m512i sum = _mm512_setzero_si512();
    int64_t k = 0;
    for (; k + 64 <= args.depth; k += 64) {
      sum = _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(row + k), ones);
    }
    if (k < args.depth) {
      sum = _mm512_dpbusd_epi32(sum, _mm512_maskz_loadu_epi8(rest, row + k), ones);
    }
    const uint32_t total = static_cast<uint32_t>(_mm512_reduce_add_epi32(sum));
    args.terms[r] = static_cast<int32_t>(total * static_cast<uint32_t>(args.factor));
  }
}

__m512i Broadcast4(const uint8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return _mm512_set1_epi32(four);
}

struct TileArgs {
  const uint8_t* lhs;
  int64_t lhs_stride;
  const int32_t* row_terms;  // or nullptr
  const uint8_t* rhs;
  int64_t groups;
  const int32_t* bias;
};

// sums[kRows][16 * kVectors] of one tile, bias and row terms included. Few sums are split over
// several chains, since one chain advances only once per latency of VPDPBUSD.
template <int kRows, int kVectors>
void Tile(const TileArgs& args, int32_t* sums) {
  constexpr int kSums = kRows * kVectors;
  constexpr int kChains = kSums >= 6 ? 1 : (kSums >= 3 ? 2 : 4);
  // x86 addresses base + {0, 1, 2} * stride for free, so a third of the row pointers suffices.
  const uint8_t* lhs[(kRows + 2) / 3];
#pragma GCC unroll 16
  for (int i = 0; i < (kRows + 2) / 3; ++i) lhs[i] = args.lhs + 3 * i * args.lhs_stride;
  const int64_t stride = args.lhs_stride;
  const uint8_t* rhs = args.rhs;

  __m512i c[kChains][kRows][kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const __m512i bias = _mm512_load_si512(args.bias + 16 * v);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) c[0][r][v] = bias;
  }
  if (args.row_terms != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512i term = _mm512_set1_epi32(args.row_terms[r]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) c[0][r][v] = _mm512_add_epi32(c[0][r][v], term);
    }
  }
#pragma GCC unroll 16
  for (int chain = 1; chain < kChains; ++chain) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) c[chain][r][v] = _mm512_setzero_si512();
    }
  }

  const auto step = [&](int chain) __attribute__((always_inline)) {
    __m512i b[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) b[v] = _mm512_load_si512(rhs + 64 * v);
    rhs += 64 * kVectors;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512i a = Broadcast4(lhs[r / 3] + (r % 3) * stride);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        c[chain][r][v] = _mm512_dpbusd_epi32(c[chain][r][v], a, b[v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < (kRows + 2) / 3; ++i) lhs[i] += kGroup;
  };
  int64_t group = 0;
  for (; group + kChains <= args.groups; group += kChains) {
#pragma GCC unroll 16
    for (int chain = 0; chain < kChains; ++chain) step(chain);
  }
  for (; group < args.groups; ++group) step(0);

#pragma GCC unroll 16
  for (int chain = 1; chain < kChains; ++chain) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        c[0][r][v] = _mm512_add_epi32(c[0][r][v], c[chain][r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      _mm512_store_si512(sums + 16 * (kVectors * r + v), c[0][r][v]);
    }
  }
}

using TileFn = void (*)(const TileArgs& args, int32_t* sums);
#define ATOLL_TILES(vectors)                                                                      \
  {                                                                                               \
    nullptr, Tile<1, vectors>, Tile<2, vectors>, Tile<3, vectors>, Tile<4, vectors>,              \
        Tile<5, vectors>, Tile<6, vectors>, Tile<7, vectors>, Tile<8, vectors>, Tile<9, vectors>, \
        Tile<10, vectors>, Tile<11, vectors>, Tile<12, vectors>, Tile<13, vectors>,               \
        Tile<14, vectors>                                                                         \
  }
constexpr TileFn kTiles[2][kTileRows + 1] = {ATOLL_TILES(1), ATOLL_TILES(2)};
#undef ATOLL_TILES

struct StoreArgs {
  const OutputColumns* columns;
  int32_t column;
  int32_t width;  // columns to write
  int32_t rows;
  uint8_t* output;
  int64_t output_stride;
};

// sums[rows][32] to bytes, two rows at a time; an odd last row is done twice.
template <RequantizeMode kMode>
void StoreWide(const StoreArgs& args, const int32_t* sums) {
  const Scale512 left = LoadScale<kMode>(*args.columns, args.column);
  const Scale512 right = LoadScale<kMode>(*args.columns, args.column + 16);
  const Bytes512 to_bytes = LoadBytes(args.columns->zero_point, args.columns->clamp);
  const __mmask32 mask = static_cast<__mmask32>(LowBytes(args.width));
  for (int32_t r = 0; r < args.rows; r += 2) {
    const int32_t next = r + 1 < args.rows ? r + 1 : r;
    const int32_t* first = sums + 32 * r;
    const int32_t* second = sums + 32 * next;
    const __m512i bytes = ToBytes(Rescale<kMode>(_mm512_load_si512(first), left),
                                  Rescale<kMode>(_mm512_load_si512(first + 16), right),
                                  Rescale<kMode>(_mm512_load_si512(second), left),
                                  Rescale<kMode>(_mm512_load_si512(second + 16), right), to_bytes);
    uint8_t* output0 = args.output + r * args.output_stride;
    uint8_t* output1 = args.output + next * args.output_stride;
    const __m256i bytes0 = _mm512_castsi512_si256(bytes);
    const __m256i bytes1 = _mm512_extracti64x4_epi64(bytes, 1);
    if (args.width == 32) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(output0), bytes0);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(output1), bytes1);
    } else {
      _mm256_mask_storeu_epi8(output0, mask, bytes0);
      _mm256_mask_storeu_epi8(output1, mask, bytes1);
    }
  }
}

// sums[rows][16] to bytes, four rows at a time; the last ones may be done more than once.
template <RequantizeMode kMode>
void StoreNarrow(const StoreArgs& args, const int32_t* sums) {
  const Scale512 scale = LoadScale<kMode>(*args.columns, args.column);
  const Bytes512 to_bytes = LoadBytes(args.columns->zero_point, args.columns->clamp);
  const __mmask16 mask = static_cast<__mmask16>(LowBytes(args.width));
  for (int32_t r = 0; r < args.rows; r += 4) {
    int32_t row[4];
    __m512i v[4];
    for (int i = 0; i < 4; ++i) {
      row[i] = r + i < args.rows ? r + i : args.rows - 1;
      v[i] = Rescale<kMode>(_mm512_load_si512(sums + 16 * row[i]), scale);
    }
    const __m512i bytes = ToBytes(v[0], v[1], v[2], v[3], to_bytes);
    const __m128i part[4] = {_mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
                             _mm512_extracti32x4_epi32(bytes, 2),
                             _mm512_extracti32x4_epi32(bytes, 3)};
    for (int i = 0; i < 4; ++i) {
      uint8_t* output = args.output + row[i] * args.output_stride;
      if (args.width == 16) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(output), part[i]);
      } else {
        _mm_mask_storeu_epi8(output, mask, part[i]);
      }
    }
  }
}

void Store(const StoreArgs& args, const int32_t* sums, int vectors) {
  const uint8_t* vectorizable = args.columns->vectorizable + args.column / OutputColumns::kBlock;
  if (vectorizable[0] == 0 || (vectors == 2 && vectorizable[1] == 0)) {
    RequantizePlain(*args.columns, {sums, 16 * vectors, args.rows, args.column, args.width,
                                    args.output, args.output_stride});
    return;
  }
  const bool fixed_point = args.columns->mode == RequantizeMode::kFixedPoint;
  if (vectors == 2) {
    (fixed_point ? StoreWide<RequantizeMode::kFixedPoint>
                 : StoreWide<RequantizeMode::kDouble>)(args, sums);
  } else {
    (fixed_point ? StoreNarrow<RequantizeMode::kFixedPoint>
                 : StoreNarrow<RequantizeMode::kDouble>)(args, sums);
  }
}

void Run(const GemmArgs& args) {
  alignas(64) int32_t sums[kTileRows * kPanelColumns];
  const int32_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  for (int32_t column = args.first_column; column < args.end_column; column += kPanelColumns) {
    const int32_t left = args.end_column - column;
    const int32_t width = left < kPanelColumns ? left : kPanelColumns;
    const int vectors = width > 16 ? 2 : 1;
    int32_t row = 0;
    for (int32_t tile = 0; tile < tiles; ++tile) {
      // Tiles of equal height, as far as possible: a last tile of one row would cost like four.
      const int32_t rows = (args.rows - row + (tiles - tile) - 1) / (tiles - tile);
      kTiles[vectors - 1][rows]({args.lhs + row * args.lhs_stride, args.lhs_stride,
                                 args.row_terms == nullptr ? nullptr : args.row_terms + row,
                                 args.rhs + column * args.padded_depth, args.padded_depth / kGroup,
                                 args.columns->bias + column},
                                sums);
      Store({args.columns, column, width, rows, args.output + row * args.output_stride + column,
             args.output_stride},
            sums, vectors);
      row += rows;
    }
  }
}

}  // namespace

const GemmKernel GemmAvx512Vnni = {
    .name = "GemmAvx512Vnni",
    .tile_rows = kTileRows,
    .panel_columns = kPanelColumns,
    .k_group = kGroup,
    .lhs_element_bytes = 1,
    .int8_lhs_offset = 128,
    .copy_lhs = CopyLhs,
    .row_terms = RowTerms,
    .run = Run,
};

}  // namespace atollrt
