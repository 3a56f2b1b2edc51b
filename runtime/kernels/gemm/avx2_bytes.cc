// SPDX-License-Identifier: Apache-2.0
//
// GemmAvx2Bytes, for small weights: VPMADDUBSW multiplies pairs of unsigned activations and signed
// weights and adds the two products, in int16, where two such sums meet before VPMADDWD widens
// them: five instructions for 64 products, where GemmAvx2 takes eight. Nothing overflows where
// positive weights of a sum are at most 128 together, and negative ones at least -128, as 255 * 128
// = 32640.
#include "runtime/kernels/gemm/tiles256.h"

namespace atollrt {
namespace {

// The register tile is 4 x 16: 8 sums, four vectors of weights, two broadcasts, a product, ones.
struct ByteTiles {
  static constexpr int kRows = 4;
  static constexpr int kColumns = 16;

  static __m256i LoadRhs(const uint8_t* from) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }

  template <int kTileRows, int kTileColumns>
  static void Tile(const TileArgs& args, int32_t* sums) {
    constexpr int kVectors = kTileColumns / kLanes;
    constexpr int kPointers = (kTileRows + 2) / 3;
    constexpr int kBytes = 32 * kVectors;  // of a group
    const int64_t stride = args.lhs_stride;
    const uint8_t* rhs = args.panel->weights;
    const __m256i ones = _mm256_set1_epi16(1);

    TileSums<kTileRows, kVectors> c;
    StartSums<kTileRows, kVectors>(args.bias, c);
    for (int64_t s = 0; s < args.panel->segment_count; ++s) {
      const RhsSegment& segment = args.panel->segments[s];
      const uint8_t* lhs[kPointers];
#pragma GCC unroll 16
      for (int i = 0; i < kPointers; ++i) lhs[i] = args.lhs + segment.lhs_offset + 3 * i * stride;
      int64_t group = 0;
      for (; group + 2 <= segment.groups; group += 2) {
        __m256i b0[kVectors], b1[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          b0[v] = LoadRhs(rhs + 32 * v);
          b1[v] = LoadRhs(rhs + kBytes + 32 * v);
        }
        rhs += 2 * kBytes;
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) {
          const uint8_t* const from = lhs[r / 3] + (r % 3) * stride;
          const __m256i a0 = Broadcast4(from);
          const __m256i a1 = Broadcast4(from + kGroupBytes256);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) {
            const __m256i words =
                _mm256_add_epi16(_mm256_maddubs_epi16(a0, b0[v]), _mm256_maddubs_epi16(a1, b1[v]));
            c[r][v] = _mm256_add_epi32(c[r][v], _mm256_madd_epi16(words, ones));
          }
        }
#pragma GCC unroll 16
        for (int i = 0; i < kPointers; ++i) lhs[i] += 2 * kGroupBytes256;
      }
      if (group == segment.groups) continue;
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        const __m256i a = Broadcast4(lhs[r / 3] + (r % 3) * stride);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          const __m256i words = _mm256_maddubs_epi16(a, LoadRhs(rhs + 32 * v));
          c[r][v] = _mm256_add_epi32(c[r][v], _mm256_madd_epi16(words, ones));
        }
      }
      rhs += kBytes;
    }
    StoreTile<kTileRows, kVectors>(c, sums);
  }
};

}  // namespace

const GemmKernel GemmAvx2Bytes = {
    .name = "GemmAvx2Bytes",
    .tile_rows = ByteTiles::kRows,
    .panel_columns = ByteTiles::kColumns,
    .k_group = kGroupBytes256,
    .lhs_element_bytes = 1,
    .sums_words = true,
    .int8_lhs_offset = 128,
    .fit = FitFloatColumnAvx2,
    .copy_lhs = CopyBytes<ByteType::kInt8>,
    .run = Run<ByteTiles>,
};

}  // namespace atollrt
