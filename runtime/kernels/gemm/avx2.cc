// SPDX-License-Identifier: Apache-2.0
//
// GemmAvx2: VPMADDWD multiplies pairs of int16 and adds the two products: exact, as activations
// lie within [-128, 255] and weights within [-128, 127]. (VPMADDUBSW would be twice as fast, but
// it saturates to int16.) Activations are widened once, when copied; weights stay bytes, to keep
// twice as many in the caches, and are widened when loaded.
//
// The register tile is 6 x 16: 12 sums, two vectors of weights, one broadcast, one product.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/requantize_avx2.h"

namespace atollrt {
namespace {

constexpr int32_t kTileRows = 6;
constexpr int32_t kPanelColumns = 16;
constexpr int32_t kGroup = 2;

// 16 bytes at `from`, of which those at or past `end` are not read and yield 0.
__m128i Load16Before(const uint8_t* from, const uint8_t* end) {
  if (end - from >= 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  alignas(16) uint8_t bytes[16] = {};
  for (int i = 0; i < 16 && from + i < end; ++i) bytes[i] = from[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
}

template <ByteType kType>
void CopyRows(const CopyLhsArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint8_t* source = args.source + r * args.source_stride;
    uint8_t* target = args.target + r * args.target_stride;
    for (int64_t i = 0; i < args.count; i += 16) {
      const __m128i bytes = Load16Before(source + i, args.source_end);
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(target + 2 * i),
          kType == ByteType::kInt8 ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes));
    }
  }
}

void CopyLhs(const CopyLhsArgs& args) {
  (args.type == ByteType::kInt8 ? CopyRows<ByteType::kInt8> : CopyRows<ByteType::kUInt8>)(args);
}

__m256i Broadcast2(const uint8_t* from) {
  int32_t two;
  __builtin_memcpy(&two, from, sizeof(two));
  return _mm256_set1_epi32(two);
}

struct TileArgs {
  const uint8_t* lhs;
  int64_t lhs_stride;
  const RhsPanel* panel;
  const int32_t* bias;
};

// sums[kRows][8 * kVectors] of one tile, bias included.
template <int kRows, int kVectors>
void Tile(const TileArgs& args, int32_t* sums) {
  const int64_t stride = args.lhs_stride;
  const uint8_t* rhs = args.panel->weights;

  __m256i c[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) c[r][v] = Load256(args.bias + 8 * v);
  }
  for (int64_t s = 0; s < args.panel->segment_count; ++s) {
    const RhsSegment& segment = args.panel->segments[s];
    // x86 addresses base + {0, 1, 2} * stride for free.
    const uint8_t* lhs[(kRows + 2) / 3];
#pragma GCC unroll 16
    for (int i = 0; i < (kRows + 2) / 3; ++i)
      lhs[i] = args.lhs + segment.lhs_offset + 3 * i * stride;
    for (int64_t group = 0; group < segment.groups; ++group) {
      __m256i b[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        b[v] = _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(rhs + 16 * v)));
      }
      rhs += 16 * kVectors;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m256i a = Broadcast2(lhs[r / 3] + (r % 3) * stride);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          c[r][v] = _mm256_add_epi32(c[r][v], _mm256_madd_epi16(a, b[v]));
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < (kRows + 2) / 3; ++i) lhs[i] += 4;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(sums + 8 * (kVectors * r + v)), c[r][v]);
    }
  }
}

using TileFn = void (*)(const TileArgs& args, int32_t* sums);
constexpr TileFn kTiles[2][kTileRows + 1] = {
    {nullptr, Tile<1, 1>, Tile<2, 1>, Tile<3, 1>, Tile<4, 1>, Tile<5, 1>, Tile<6, 1>},
    {nullptr, Tile<1, 2>, Tile<2, 2>, Tile<3, 2>, Tile<4, 2>, Tile<5, 2>, Tile<6, 2>}};

struct StoreArgs {
  const OutputColumns* columns;
  int32_t column;
  int32_t width;  // columns to write
  int32_t rows;
  uint8_t* output;
  int64_t output_stride;
};

// sums[rows][8 * kVectors] to bytes, 32 at a time; the last rows may be done more than once.
template <RequantizeMode kMode, int kVectors>
void StoreRows(const StoreArgs& args, const int32_t* sums) {
  constexpr int kRowsAtOnce = 4 / kVectors;
  constexpr int kWidth = 8 * kVectors;
  Scale256 scale[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = LoadScale<kMode>(*args.columns, args.column + 8 * v);
  }
  const Bytes256 to_bytes = LoadBytes(args.columns->zero_point, args.columns->clamp);
  for (int32_t r = 0; r < args.rows; r += kRowsAtOnce) {
    __m256i value[4];
    alignas(32) uint8_t bytes[32];
    for (int i = 0; i < 4; ++i) {
      const int32_t row = r + i / kVectors < args.rows ? r + i / kVectors : args.rows - 1;
      value[i] =
          Rescale<kMode>(Load256(sums + kWidth * row + 8 * (i % kVectors)), scale[i % kVectors]);
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(bytes),
                       ToBytes(value[0], value[1], value[2], value[3], to_bytes));
    for (int i = 0; i < kRowsAtOnce && r + i < args.rows; ++i) {
      uint8_t* output = args.output + (r + i) * args.output_stride;
      if (args.width == kWidth) {
        __builtin_memcpy(output, bytes + kWidth * i, kWidth);
      } else {
        for (int32_t c = 0; c < args.width; ++c) output[c] = bytes[kWidth * i + c];
      }
    }
  }
}

void Store(const StoreArgs& args, const int32_t* sums, int vectors) {
  if (args.columns->vectorizable[args.column / OutputColumns::kBlock] == 0) {
    RequantizePlain(*args.columns, {sums, 8 * vectors, args.rows, args.column, args.width,
                                    args.output, args.output_stride});
    return;
  }
  constexpr RequantizeMode kFixedPoint = RequantizeMode::kFixedPoint;
  constexpr RequantizeMode kDouble = RequantizeMode::kDouble;
  const bool fixed_point = args.columns->mode == kFixedPoint;
  if (vectors == 2) {
    (fixed_point ? StoreRows<kFixedPoint, 2> : StoreRows<kDouble, 2>)(args, sums);
  } else {
    (fixed_point ? StoreRows<kFixedPoint, 1> : StoreRows<kDouble, 1>)(args, sums);
  }
}

// One panel of one line.
void RunLine(const GemmArgs& args, int32_t line, int32_t column) {
  alignas(32) int32_t sums[kTileRows * kPanelColumns];
  const uint8_t* const lhs = args.lhs + line * args.lhs_line_stride;
  uint8_t* const output = args.output + line * args.output_line_stride + column;
  const int32_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  const int32_t left = args.end_column - column;
  const int32_t width = left < kPanelColumns ? left : kPanelColumns;
  const int vectors = width > 8 ? 2 : 1;
  int32_t row = 0;
  for (int32_t tile = 0; tile < tiles; ++tile) {
    // Tiles of equal height, as far as possible.
    const int32_t rows = (args.rows - row + (tiles - tile) - 1) / (tiles - tile);
    kTiles[vectors - 1][rows]({lhs + row * args.lhs_stride, args.lhs_stride,
                               args.panels + column / kPanelColumns, args.columns->bias + column},
                              sums);
    Store(
        {args.columns, column, width, rows, output + row * args.output_stride, args.output_stride},
        sums, vectors);
    row += rows;
  }
}

void Run(const GemmArgs& args) {
  for (int32_t column = args.first_column; column < args.end_column; column += kPanelColumns) {
    for (int32_t line = 0; line < args.lines; ++line) RunLine(args, line, column);
  }
}

}  // namespace

const GemmKernel GemmAvx2 = {
    .name = "GemmAvx2",
    .tile_rows = kTileRows,
    .panel_columns = kPanelColumns,
    .k_group = kGroup,
    .lhs_element_bytes = 2,
    .int8_lhs_offset = 0,
    .copy_lhs = CopyLhs,
    .run = Run,
};

}  // namespace atollrt
