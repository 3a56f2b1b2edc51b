// SPDX-License-Identifier: Apache-2.0
//
// GemmNeonDotprod: SDOT adds the products of four neighbouring bytes to each of four int32, with
// the four activations from any lane of a register: 16 of a row are loaded at once, and none is
// broadcast.
//
// The register tile is 8 x 8: 16 vectors of sums, 8 of activations, two of weights.
#include "runtime/kernels/gemm/neon_tiles.h"

namespace atollrt {
namespace {

constexpr int32_t kGroup = 4;
constexpr int64_t kGroupsAtOnce = 4;  // of a register

// Adds the products of one group, in lane kLane of the activations.
template <int kLane, int kRows, int kVectors>
inline void Step(int32x4_t c[kRows][kVectors], const int8x16_t a[kRows], const int8_t* rhs) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const int8x16_t b = vld1q_s8(rhs + 16 * v);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) c[r][v] = vdotq_laneq_s32(c[r][v], b, a[r], kLane);
  }
}

struct Tiles {
  static constexpr int kRows = 8;
  static constexpr int kColumns = 8;

  template <int kTileRows, int kTileColumns>
  static void Tile(const TileArgs& args, int32_t* sums) {
    constexpr int kVectors = kTileColumns / kLanes;
    constexpr int kStep = 16 * kVectors;  // bytes of weights per group
    const int8_t* rhs = Signed(args.panel->weights);
    int32x4_t c[kTileRows][kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const int32x4_t bias = vld1q_s32(args.bias + 4 * v);
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) c[r][v] = bias;
    }
    for (int64_t s = 0; s < args.panel->segment_count; ++s) {
      const RhsSegment& segment = args.panel->segments[s];
      const int8_t* lhs[kTileRows];
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        lhs[r] = Signed(args.lhs + segment.lhs_offset + r * args.lhs_stride);
      }
      int64_t group = 0;
      for (; group + kGroupsAtOnce <= segment.groups; group += kGroupsAtOnce) {
        int8x16_t a[kTileRows];
#pragma GCC unroll 8
        for (int r = 0; r < kTileRows; ++r) {
          a[r] = vld1q_s8(lhs[r]);
          lhs[r] += 16;
        }
        Step<0, kTileRows, kVectors>(c, a, rhs);
        Step<1, kTileRows, kVectors>(c, a, rhs + kStep);
        Step<2, kTileRows, kVectors>(c, a, rhs + 2 * kStep);
        Step<3, kTileRows, kVectors>(c, a, rhs + 3 * kStep);
        rhs += 4 * kStep;
      }
      for (; group < segment.groups; ++group) {
        int8x16_t a[kTileRows];
#pragma GCC unroll 8
        for (int r = 0; r < kTileRows; ++r) {
          int32_t four;
          __builtin_memcpy(&four, lhs[r], sizeof(four));
          a[r] = vreinterpretq_s8_s32(vdupq_n_s32(four));
          lhs[r] += kGroup;
        }
        Step<0, kTileRows, kVectors>(c, a, rhs);
        rhs += kStep;
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) vst1q_s32(sums + 4 * (kVectors * r + v), c[r][v]);
    }
  }
};

}  // namespace

const GemmKernel GemmNeonDotprod =
    NeonGemm<Tiles>("GemmNeonDotprod", kGroup, /*narrow_weights=*/false);

}  // namespace atollrt
