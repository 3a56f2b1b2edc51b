// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseNeonDotprod: one SDOT adds the products of four taps for each of four channels.
#include "runtime/kernels/depthwise/neon_cells.h"

namespace atollrt {
namespace {

struct DotProducts : BlockProducts {
  static constexpr int kPixels = 4;
  static constexpr int kSums = 1;

  static void Start(int32x4_t bias, int32x4_t sums[1]) { sums[0] = bias; }
  static void Add(int32x4_t sums[1], int8x16_t cell, int8x16_t weight) {
    sums[0] = vdotq_s32(sums[0], cell, weight);
  }
  static int32x4_t Total(const int32x4_t sums[1]) { return sums[0]; }
};

}  // namespace

const DepthwiseKernel DepthwiseNeonDotprod = NeonDepthwise<DotProducts>("DepthwiseNeonDotprod");

}  // namespace atollrt
