// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseNeon: SMULL multiplies eight pairs of bytes, SADALP adds neighbouring products to int32:
// exact, and on cores with two vector pipelines each keeps one of them busy. A channel's four taps
// thus end in two sums, which are added last.
//
// Two groups of taps could share a SADALP, as in gemm/neon.cc. Filters have three groups, mostly,
// of which one has no partner, and loads take their time, too: modelled, an A53 would gain 3 % of
// this loop and an A72 11 %, and weights of -128 would need another group.
#include "runtime/kernels/depthwise/neon_cells.h"

namespace atollrt {
namespace {

struct LongProducts : BlockProducts {
  static constexpr int kPixels = 2;
  static constexpr int kSums = 2;

  static void Start(int32x4_t bias, int32x4_t sums[kSums]) {
    sums[0] = vzip1q_s32(bias, vdupq_n_s32(0));
    sums[1] = vzip2q_s32(bias, vdupq_n_s32(0));
  }
  static void Add(int32x4_t sums[kSums], int8x16_t cell, int8x16_t weight) {
    const int16x8_t low = vmull_s8(vget_low_s8(cell), vget_low_s8(weight));
    const int16x8_t high = vmull_high_s8(cell, weight);
    sums[0] = vpadalq_s16(sums[0], low);
    sums[1] = vpadalq_s16(sums[1], high);
  }
  static int32x4_t Total(const int32x4_t sums[kSums]) { return vpaddq_s32(sums[0], sums[1]); }
};

}  // namespace

const DepthwiseKernel DepthwiseNeon = NeonDepthwise<LongProducts>("DepthwiseNeon");

}  // namespace atollrt
