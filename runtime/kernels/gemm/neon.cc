// SPDX-License-Identifier: Apache-2.0
//
// GemmNeon: SMULL multiplies eight pairs of bytes, SADALP adds neighbouring products to int32:
// exact, also for -128 * -128 twice, and on cores with two vector pipelines each keeps one of them
// busy. (Adding a second product in 16 bits, with SMLAL, would overflow there.)
//
// A vector of sums belongs to one output and is added up at the end, so nothing has to be
// broadcast. The register tile is 4 x 4: 16 vectors of sums, four of weights.
#include "runtime/kernels/gemm/neon_tiles.h"

namespace atollrt {
namespace {

constexpr int32_t kGroup = 8;

struct Tiles {
  static constexpr int kRows = 4;
  static constexpr int kColumns = 4;

  template <int kTileRows, int kTileColumns>
  static void Tile(const TileArgs& args, int32_t* sums) {
    const int8_t* rhs = Signed(args.panel->weights);
    int32x4_t c[kTileRows][4];
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) c[r][j] = vdupq_n_s32(0);
    }
    for (int64_t s = 0; s < args.panel->segment_count; ++s) {
      const RhsSegment& segment = args.panel->segments[s];
      const int8_t* lhs[kTileRows];
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) {
        lhs[r] = Signed(args.lhs + segment.lhs_offset + r * args.lhs_stride);
      }
      for (int64_t group = 0; group < segment.groups; ++group) {
        int8x8_t b[kTileColumns];
#pragma GCC unroll 4
        for (int j = 0; j < kTileColumns; ++j) b[j] = vld1_s8(rhs + kGroup * j);
        rhs += kGroup * kTileColumns;
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r) {
          const int8x8_t a = vld1_s8(lhs[r]);
          lhs[r] += kGroup;
#pragma GCC unroll 4
          for (int j = 0; j < kTileColumns; ++j) c[r][j] = vpadalq_s16(c[r][j], vmull_s8(a, b[j]));
        }
      }
    }
    const int32x4_t bias = vld1q_s32(args.bias);
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      const int32x4_t left = vpaddq_s32(c[r][0], c[r][1]);
      const int32x4_t right = vpaddq_s32(c[r][2], c[r][3]);
      vst1q_s32(sums + 4 * r, vaddq_s32(vpaddq_s32(left, right), bias));
    }
  }
};

}  // namespace

const GemmKernel GemmNeon = NeonGemm<Tiles>("GemmNeon", kGroup);

}  // namespace atollrt
