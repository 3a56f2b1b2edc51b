// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on 256-bit registers, for inclusion by ISA files only, which say how bytes are
// multiplied. A group is four bytes of lhs, and one register of weights for 8 columns. `Products`
// is a class with
//   kRhsBytes         of the weights of 8 columns
//   kMostFusedGroups  tiles of at most so many groups become bytes in registers; 0: none
//   LoadRhs(from)     these weights, aligned to kRhsBytes
//   Add(sums, a, b)   sums of 8 columns, plus the products of a broadcast group and weights
//
// The register tile is 6 x 16: 12 sums, two vectors of weights, one broadcast, one product.
#pragma once

#include "runtime/kernels/gemm/tiles.h"
#include "runtime/kernels/quantization/nearest_rounding.h"

namespace atollrt {
namespace {

constexpr int64_t kGroupBytes256 = 4;  // of lhs

inline __m256i Broadcast4(const uint8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return _mm256_set1_epi32(four);
}

// The sums of a tile, by rows and vectors of 8 columns.
template <int kTileRows, int kVectors>
using TileSums = __m256i[kTileRows][kVectors];

template <int kTileRows, int kVectors>
[[gnu::always_inline]] inline void StartSums(const int32_t* bias,
                                             TileSums<kTileRows, kVectors>& c) {
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) c[r][v] = LoadVector(bias + 8 * v);
  }
}

template <int kTileRows, int kVectors>
[[gnu::always_inline]] inline void StoreTile(const TileSums<kTileRows, kVectors>& c,
                                             int32_t* sums) {
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) StoreVector(sums + 8 * (kVectors * r + v), c[r][v]);
  }
}

template <typename Products>
struct Tiles256 {
  static constexpr int kRows = 6;
  static constexpr int kColumns = 16;

  template <int kTileRows, int kTileColumns>
  static void Tile(const TileArgs& args, int32_t* sums) {
    constexpr int kVectors = kTileColumns / kLanes;
    TileSums<kTileRows, kVectors> c;
    Sum<kTileRows, kVectors>(args, c);
    StoreTile<kTileRows, kVectors>(c, sums);
  }

  // Of one segment of few products, where all columns have float forms. The last tile begins so
  // early that it is whole.
  static bool RunLineInRegisters(const GemmArgs& args, int32_t line,
                                 int32_t column) requires(Products::kMostFusedGroups > 0) {
    const RhsPanel& panel = args.panels[column / kColumns];
    if (args.end_column - column < kColumns || args.rows < kRows || panel.segment_count > 1 ||
        panel.segments[0].groups > Products::kMostFusedGroups ||
        args.columns->mode != RequantizeMode::kFixedPoint) {
      return false;
    }
    const FloatForm form = FormOf<kColumns / kLanes>(*args.columns, column);
    if (form == FloatForm::kNone) return false;
    const NearestRounding nearest;
    const Bytes to_bytes = LoadBytes(args.columns->zero_point, args.columns->clamp);
    const uint8_t* const lhs = args.lhs + line * args.lhs_line_stride;
    uint8_t* const output = args.output + line * args.output_line_stride + column;
    for (int32_t row = 0; row < args.rows; row += kRows) {
      const int32_t first = row + kRows <= args.rows ? row : args.rows - kRows;
      TileSums<kRows, 2> c;
      Sum<kRows, 2>(
          {lhs + first * args.lhs_stride, args.lhs_stride, &panel, args.columns->bias + column}, c);
      uint8_t* const to = output + first * args.output_stride;
      if (form == FloatForm::kPositive) {
        StoreBytesOf<Epilogue::kFloatPositive>(c, *args.columns, column, to_bytes, to,
                                               args.output_stride);
      } else {
        StoreBytesOf<Epilogue::kFloat>(c, *args.columns, column, to_bytes, to, args.output_stride);
      }
    }
    return true;
  }

 private:
  template <Epilogue kEpilogue>
  [[gnu::always_inline]] static void StoreBytesOf(const TileSums<kRows, 2>& c,
                                                  const OutputColumns& columns, int32_t column,
                                                  const Bytes& to_bytes, uint8_t* to,
                                                  int64_t stride) {
    const Scale low = LoadScale<kEpilogue>(columns, column);
    const Scale high = LoadScale<kEpilogue>(columns, column + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r += 2) {
      const __m256i bytes = ToBytes(
          Rescale<kEpilogue>(c[r][0], low), Rescale<kEpilogue>(c[r][1], high),
          Rescale<kEpilogue>(c[r + 1][0], low), Rescale<kEpilogue>(c[r + 1][1], high), to_bytes);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(bytes));
      to += stride;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_extracti128_si256(bytes, 1));
      to += stride;
    }
  }

  template <int kTileRows, int kVectors>
  [[gnu::always_inline]] static void Sum(const TileArgs& args, TileSums<kTileRows, kVectors>& c) {
    // x86 addresses base + {0, 1, 2} * stride for free.
    constexpr int kPointers = (kTileRows + 2) / 3;
    const int64_t stride = args.lhs_stride;
    const uint8_t* rhs = args.panel->weights;

    StartSums<kTileRows, kVectors>(args.bias, c);
    for (int64_t s = 0; s < args.panel->segment_count; ++s) {
      const RhsSegment& segment = args.panel->segments[s];
      const uint8_t* lhs[kPointers];
#pragma GCC unroll 16
      for (int i = 0; i < kPointers; ++i) lhs[i] = args.lhs + segment.lhs_offset + 3 * i * stride;
      for (int64_t group = 0; group < segment.groups; ++group) {
        __m256i b[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          b[v] = Products::LoadRhs(rhs + Products::kRhsBytes * v);
        }
        rhs += Products::kRhsBytes * kVectors;
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) {
          const __m256i a = Broadcast4(lhs[r / 3] + (r % 3) * stride);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) {
            c[r][v] = Products::Add(c[r][v], a, b[v]);
          }
        }
#pragma GCC unroll 16
        for (int i = 0; i < kPointers; ++i) lhs[i] += kGroupBytes256;
      }
    }
  }
};

#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
// VPDPBUSD takes unsigned activations, so int8 ones are moved by 128.
struct ByteProducts {
  static constexpr int kRhsBytes = 32;
  static constexpr int64_t kMostFusedGroups = 0;  // nothing gained
  static __m256i LoadRhs(const uint8_t* from) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }
  static __m256i Add(__m256i sums, __m256i a, __m256i b) { return Dpbusd256(sums, a, b); }
};

constexpr GemmKernel Vnni256Gemm(const char* name) {
  using Tiles = Tiles256<ByteProducts>;
  return {.name = name,
          .tile_rows = Tiles::kRows,
          .panel_columns = Tiles::kColumns,
          .k_group = kGroupBytes256,
          .lhs_element_bytes = 1,
          .int8_lhs_offset = 128,
          .fit = FitFloatColumnAvx2,
          .copy_lhs = CopyBytes<ByteType::kInt8>,
          .run = Run<Tiles>};
}
#endif

}  // namespace
}  // namespace atollrt
