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

// -1 in the 64 bits of two groups where magnitudes of one sign sum to more than `most`.
__m256i AreWide(__m256i magnitudes, int16_t most) {
  const __m256i words = _mm256_maddubs_epi16(magnitudes, _mm256_set1_epi8(1));
  const __m256i sums = _mm256_add_epi16(words, _mm256_shuffle_epi32(words, 0xb1));
  return _mm256_cmpgt_epi16(sums, _mm256_set1_epi16(most));
}

// Of 32 weights, those of four times two groups.
void MarkWide32(__m256i weights, __m256i zero, __m256i mark, uint64_t* wide) {
  const __m256i is_wide = _mm256_or_si256(AreWide(_mm256_subs_epu8(weights, zero), 127),
                                          AreWide(_mm256_subs_epu8(zero, weights), 128));
  const __m256i is_narrow = _mm256_cmpeq_epi64(is_wide, _mm256_setzero_si256());
  __m256i* const to = reinterpret_cast<__m256i*>(wide);
  _mm256_storeu_si256(
      to, _mm256_or_si256(_mm256_loadu_si256(to), _mm256_andnot_si256(is_narrow, mark)));
}

void MarkWide(const uint8_t* weights, int64_t count, uint8_t flip, uint8_t zero, uint64_t mark,
              uint64_t* wide) {
  constexpr int64_t kWeights = 32, kPairs = 4;
  const __m256i flips = _mm256_set1_epi8(static_cast<char>(flip));
  const __m256i zeros = _mm256_set1_epi8(static_cast<char>(zero));
  const __m256i marks = _mm256_set1_epi64x(static_cast<int64_t>(mark));
  int64_t k = 0;
  for (; k + kWeights <= count; k += kWeights, wide += kPairs) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + k));
    MarkWide32(_mm256_xor_si256(w, flips), zeros, marks, wide);
  }
  if (k == count) return;
  alignas(32) uint8_t last[kWeights];
  _mm256_store_si256(reinterpret_cast<__m256i*>(last), _mm256_xor_si256(zeros, flips));
  __builtin_memcpy(last, weights + k, static_cast<size_t>(count - k));
  const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(last));
  uint64_t last_wide[kPairs] = {};
  MarkWide32(_mm256_xor_si256(w, flips), zeros, marks, last_wide);
  for (int64_t i = 0; 8 * i < count - k; ++i) wide[i] |= last_wide[i];
}

}  // namespace

const GemmKernel GemmAvx2Bytes = {
    .name = "GemmAvx2Bytes",
    .tile_rows = ByteTiles::kRows,
    .panel_columns = ByteTiles::kColumns,
    .k_group = kGroupBytes256,
    .lhs_element_bytes = 1,
    .mark_wide = MarkWide,
    .int8_lhs_offset = 128,
    .fit = FitFloatColumnAvx2,
    .copy_lhs = CopyBytes<ByteType::kInt8>,
    .run = Run<ByteTiles>,
};

}  // namespace atollrt
