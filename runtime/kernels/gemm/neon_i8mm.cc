// SPDX-License-Identifier: Apache-2.0
//
// GemmNeonI8mm: SMMLA multiplies two rows of eight bytes by two columns of eight and adds the four
// sums to int32: twice the products of SDOT. Eight bytes of two neighbouring rows have to share a
// register, which costs one instruction more for every eight.
//
// The register tile is 8 x 8: 16 vectors of sums, each of 2 x 2, four of activations, one of
// weights.
#include "runtime/kernels/gemm/neon_tiles.h"

namespace atollrt {
namespace {

constexpr int32_t kGroup = 8;

// Adds the products of one group.
template <int kRowPairs, int kColumnPairs>
inline void Step(int32x4_t c[kRowPairs][kColumnPairs], const int8x16_t a[kRowPairs],
                 const int8_t* rhs) {
#pragma GCC unroll 4
  for (int j = 0; j < kColumnPairs; ++j) {
    const int8x16_t b = vld1q_s8(rhs + 16 * j);
#pragma GCC unroll 4
    for (int i = 0; i < kRowPairs; ++i) c[i][j] = vmmlaq_s32(c[i][j], a[i], b);
  }
}

inline int8x16_t Low(int8x16_t even, int8x16_t odd) {
  return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(even), vreinterpretq_s64_s8(odd)));
}
inline int8x16_t High(int8x16_t even, int8x16_t odd) {
  return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(even), vreinterpretq_s64_s8(odd)));
}

struct Tiles {
  static constexpr int kRows = 8;
  static constexpr int kColumns = 8;

  template <int kTileRows, int kTileColumns>
  static void Tile(const TileArgs& args, int32_t* sums) {
    constexpr int kColumnPairs = kTileColumns / 2;
    constexpr int kRowPairs = (kTileRows + 1) / 2;
    constexpr int kStep = 16 * kColumnPairs;  // bytes of weights per group
    const int8_t* rhs = Signed(args.panel->weights);
    int32x4_t c[kRowPairs][kColumnPairs];
#pragma GCC unroll 4
    for (int j = 0; j < kColumnPairs; ++j) {
      const int32x2_t bias = vld1_s32(args.bias + 2 * j);
#pragma GCC unroll 4
      for (int i = 0; i < kRowPairs; ++i) c[i][j] = vcombine_s32(bias, bias);
    }
    for (int64_t s = 0; s < args.panel->segment_count; ++s) {
      const RhsSegment& segment = args.panel->segments[s];
      // An odd last row is multiplied twice.
      const int8_t* lhs[2 * kRowPairs];
#pragma GCC unroll 8
      for (int r = 0; r < 2 * kRowPairs; ++r) {
        const int row = r < kTileRows ? r : kTileRows - 1;
        lhs[r] = Signed(args.lhs + segment.lhs_offset + row * args.lhs_stride);
      }
      int64_t group = 0;
      for (; group + 2 <= segment.groups; group += 2) {
        int8x16_t first[kRowPairs], second[kRowPairs];
#pragma GCC unroll 4
        for (int i = 0; i < kRowPairs; ++i) {
          const int8x16_t even = vld1q_s8(lhs[2 * i]);
          const int8x16_t odd = vld1q_s8(lhs[2 * i + 1]);
          lhs[2 * i] += 2 * kGroup;
          lhs[2 * i + 1] += 2 * kGroup;
          first[i] = Low(even, odd);
          second[i] = High(even, odd);
        }
        Step<kRowPairs, kColumnPairs>(c, first, rhs);
        Step<kRowPairs, kColumnPairs>(c, second, rhs + kStep);
        rhs += 2 * kStep;
      }
      if (group < segment.groups) {
        int8x16_t a[kRowPairs];
#pragma GCC unroll 4
        for (int i = 0; i < kRowPairs; ++i) {
          a[i] = vcombine_s8(vld1_s8(lhs[2 * i]), vld1_s8(lhs[2 * i + 1]));
        }
        Step<kRowPairs, kColumnPairs>(c, a, rhs);
        rhs += kStep;
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kColumnPairs; ++j) {
        const int32x4_t both = c[r / 2][j];
        vst1_s32(sums + 2 * (kColumnPairs * r + j),
                 r % 2 == 0 ? vget_low_s32(both) : vget_high_s32(both));
      }
    }
  }
};

}  // namespace

const GemmKernel GemmNeonI8mm = NeonGemm<Tiles>("GemmNeonI8mm", kGroup, /*narrow_weights=*/false);

}  // namespace atollrt
