// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on 256-bit registers, for inclusion by ISA files only, which say how bytes are
// multiplied. A group is four bytes of lhs, and one register of weights for 8 columns. `Products`
// is a class with
//   kRhsBytes         of the weights of 8 columns
//   LoadRhs(from)     these weights, aligned to kRhsBytes
//   Add(sums, a, b)   sums of 8 columns, plus the products of a broadcast group and weights
//
// The register tile is 6 x 16: 12 sums, two vectors of weights, one broadcast, one product.
#pragma once

#include <immintrin.h>

#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/quantization/requantize_avx2.h"

namespace atollrt {
namespace {

constexpr int32_t kTileRows = 6;
constexpr int32_t kPanelColumns = 16;
constexpr int64_t kGroupBytes = 4;  // of lhs

// 16 bytes at `from`, of which those at or past `end` are not read and yield 0.
inline __m128i Load16Before(const uint8_t* from, const uint8_t* end) {
  if (end - from >= 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  alignas(16) uint8_t bytes[16] = {};
  for (int i = 0; i < 16 && from + i < end; ++i) bytes[i] = from[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
}

inline __m256i Broadcast4(const uint8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return _mm256_set1_epi32(four);
}

struct TileArgs {
  const uint8_t* lhs;
  int64_t lhs_stride;
  const RhsPanel* panel;
  const int32_t* bias;
};

// sums[kRows][8 * kVectors] of one tile, bias included.
template <typename Products, int kRows, int kVectors>
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
        b[v] = Products::LoadRhs(rhs + Products::kRhsBytes * v);
      }
      rhs += Products::kRhsBytes * kVectors;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m256i a = Broadcast4(lhs[r / 3] + (r % 3) * stride);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          c[r][v] = Products::Add(c[r][v], a, b[v]);
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < (kRows + 2) / 3; ++i) lhs[i] += kGroupBytes;
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
template <typename Products>
constexpr TileFn kTiles[2][kTileRows + 1] = {
    {nullptr, Tile<Products, 1, 1>, Tile<Products, 2, 1>, Tile<Products, 3, 1>,
     Tile<Products, 4, 1>, Tile<Products, 5, 1>, Tile<Products, 6, 1>},
    {nullptr, Tile<Products, 1, 2>, Tile<Products, 2, 2>, Tile<Products, 3, 2>,
     Tile<Products, 4, 2>, Tile<Products, 5, 2>, Tile<Products, 6, 2>}};

struct StoreArgs {
  const OutputColumns* columns;
  int32_t column;
  int32_t width;  // columns to write
  int32_t rows;
  uint8_t* output;
  int64_t output_stride;
};

// sums[rows][8 * kVectors] to bytes, 32 at a time; the last rows may be done more than once.
template <Epilogue kEpilogue, int kVectors>
void StoreRows(const StoreArgs& args, const int32_t* sums) {
  constexpr int kRowsAtOnce = 4 / kVectors;
  constexpr int kWidth = 8 * kVectors;
  Scale256 scale[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = LoadScale<kEpilogue>(*args.columns, args.column + 8 * v);
  }
  const Bytes256 to_bytes = LoadBytes(args.columns->zero_point, args.columns->clamp);
  for (int32_t r = 0; r < args.rows; r += kRowsAtOnce) {
    __m256i value[4];
    alignas(32) uint8_t bytes[32];
    for (int i = 0; i < 4; ++i) {
      const int32_t row = r + i / kVectors < args.rows ? r + i / kVectors : args.rows - 1;
      value[i] = Rescale<kEpilogue>(Load256(sums + kWidth * row + 8 * (i % kVectors)),
                                    scale[i % kVectors]);
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

inline void Store(const StoreArgs& args, const int32_t* sums, int vectors) {
  const int32_t block = args.column / OutputColumns::kBlock;
  if (args.columns->wide_vectorizable[block] == 0) {
    RequantizePlain(*args.columns, {sums, 8 * vectors, args.rows, args.column, args.width,
                                    args.output, args.output_stride});
    return;
  }
  const auto store = [&]<Epilogue kEpilogue>() {
    (vectors == 2 ? StoreRows<kEpilogue, 2> : StoreRows<kEpilogue, 1>)(args, sums);
  };
  if (args.columns->mode == RequantizeMode::kDouble) {
    store.template operator()<Epilogue::kDouble>();
  } else if (args.columns->vectorizable[block] == 0) {
    store.template operator()<Epilogue::kWide>();
  } else {
    store.template operator()<Epilogue::kFixedPoint>();
  }
}

// One panel of one line.
template <typename Products>
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
    kTiles<Products>[vectors - 1][rows](
        {lhs + row * args.lhs_stride, args.lhs_stride, args.panels + column / kPanelColumns,
         args.columns->bias + column},
        sums);
    Store(
        {args.columns, column, width, rows, output + row * args.output_stride, args.output_stride},
        sums, vectors);
    row += rows;
  }
}

template <typename Products>
void Run(const GemmArgs& args) {
  for (int32_t column = args.first_column; column < args.end_column; column += kPanelColumns) {
    for (int32_t line = 0; line < args.lines; ++line) RunLine<Products>(args, line, column);
  }
}

}  // namespace
}  // namespace atollrt
