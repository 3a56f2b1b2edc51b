// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseNeonDotprod: one SDOT adds the products of four taps for each of four channels.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/depthwise/neon_cells.h"

namespace atollrt {
namespace {

struct DotProducts {
  static constexpr int kPixels = 4;
  static constexpr int kSums = 4;

  static void Add(int32x4_t sums[kSums], const int8x16_t cell[kVectors],
                  const int8x16_t weight[kVectors]) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) sums[i] = vdotq_s32(sums[i], cell[i], weight[i]);
  }
  static int32x4_t Total(const int32x4_t sums[kSums], int i) { return sums[i]; }
};

}  // namespace

const DepthwiseKernel DepthwiseNeonDotprod = NeonDepthwise<DotProducts>("DepthwiseNeonDotprod");

}  // namespace atollrt
