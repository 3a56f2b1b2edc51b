// SPDX-License-Identifier: Apache-2.0
//
// GemmNeon: SMULL multiplies eight pairs of bytes, SMLAL adds the products of eight more in 16
// bits, SADALP adds neighbouring sums to int32: three instructions for 16 products. A SADALP for
// each SMULL would make them four, a third more for cores that start one vector instruction per
// cycle (Cortex-A53); those with two vector pipelines multiply in one, and the other has time.
//
// Sums of two products fit 16 bits because weights are packed within [-127, 127] (narrow_weights):
// activations of both types are signed bytes here, in [-128, 127], so |a * w| <= 128 * 127 = 16256,
// and |a * w + a' * w'| <= 2 * 16256 = 32512 <= 32767. With a weight of -128, -128 * -128 twice
// would be 32768. SADALP widens before it adds. A k group without a partner, as those of what is
// left of weights are, is multiplied by SMULL and SADALP.
//
// A vector of sums belongs to one output and is added up at the end, so nothing has to be
// broadcast. The register tile is 4 x 4: 16 vectors of sums, four of products,
// eight halves of weights, two of activations.
#include "runtime/kernels/gemm/neon_tiles.h"

namespace atollrt {
namespace {

constexpr int32_t kGroup = 8;

// Has each product in a register of its own before the next instruction uses one: compilers would
// have them take turns in one register, and a core that executes in order would wait for each.
template <int kProducts>
inline void KeepApart(int16x8_t (&product)[kProducts]) {
  static_assert(kProducts == 2 || kProducts == 4);
  if constexpr (kProducts == 4) {
    asm volatile("" : "+w"(product[0]), "+w"(product[1]), "+w"(product[2]), "+w"(product[3]));
  } else {
    asm volatile("" : "+w"(product[0]), "+w"(product[1]));
  }
}

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
      int64_t group = 0;
      for (; group + 2 <= segment.groups; group += 2) {
        int8x8_t b[2 * kTileColumns];
#pragma GCC unroll 8
        for (int j = 0; j < 2 * kTileColumns; ++j) b[j] = vld1_s8(rhs + kGroup * j);
        rhs += 2 * kGroup * kTileColumns;
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r) {
          const int8x8_t a = vld1_s8(lhs[r]);
          const int8x8_t next = vld1_s8(lhs[r] + kGroup);
          lhs[r] += 2 * kGroup;
          int16x8_t product[kTileColumns];
#pragma GCC unroll 4
          for (int j = 0; j < kTileColumns; ++j) product[j] = vmull_s8(a, b[j]);
          KeepApart(product);
#pragma GCC unroll 4
          for (int j = 0; j < kTileColumns; ++j) {
            product[j] = vmlal_s8(product[j], next, b[kTileColumns + j]);
          }
#pragma GCC unroll 4
          for (int j = 0; j < kTileColumns; ++j) c[r][j] = vpadalq_s16(c[r][j], product[j]);
        }
      }
      if (group < segment.groups) {
        int8x8_t b[kTileColumns];
#pragma GCC unroll 4
        for (int j = 0; j < kTileColumns; ++j) b[j] = vld1_s8(rhs + kGroup * j);
        rhs += kGroup * kTileColumns;
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r) {
          const int8x8_t a = vld1_s8(lhs[r]);
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

const GemmKernel GemmNeon = NeonGemm<Tiles>("GemmNeon", kGroup, /*narrow_weights=*/true);

}  // namespace atollrt
