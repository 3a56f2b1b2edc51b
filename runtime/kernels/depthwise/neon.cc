// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseNeon: SMULL multiplies eight pairs of bytes, SADALP adds neighbouring products to int32:
// exact, and on cores with two vector pipelines each keeps one of them busy. A channel's four taps
// thus end in two sums, which are added last.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/depthwise/neon_cells.h"

namespace atollrt {
namespace {

struct LongProducts {
  static constexpr int kPixels = 2;
  static constexpr int kSums = 8;

  static void Add(int32x4_t sums[kSums], const int8x16_t cell[kVectors],
                  const int8x16_t weight[kVectors]) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const int16x8_t low = vmull_s8(vget_low_s8(cell[i]), vget_low_s8(weight[i]));
      const int16x8_t high = vmull_high_s8(cell[i], weight[i]);
      sums[2 * i] = vpadalq_s16(sums[2 * i], low);
      sums[2 * i + 1] = vpadalq_s16(sums[2 * i + 1], high);
    }
  }
  static int32x4_t Total(const int32x4_t sums[kSums], int i) {
    return vpaddq_s32(sums[2 * i], sums[2 * i + 1]);
  }
};

}  // namespace

const DepthwiseKernel DepthwiseNeon = NeonDepthwise<LongProducts>("DepthwiseNeon");

}  // namespace atollrt
