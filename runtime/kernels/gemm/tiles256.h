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

#include "runtime/kernels/gemm/tiles.h"

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
    // x86 addresses base + {0, 1, 2} * stride for free.
    constexpr int kPointers = (kTileRows + 2) / 3;
    const int64_t stride = args.lhs_stride;
    const uint8_t* rhs = args.panel->weights;

    TileSums<kTileRows, kVectors> c;
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
    StoreTile<kTileRows, kVectors>(c, sums);
  }
};

#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
// VPDPBUSD takes unsigned activations, so int8 ones are moved by 128.
struct ByteProducts {
  static constexpr int kRhsBytes = 32;
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
