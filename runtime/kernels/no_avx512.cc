// SPDX-License-Identifier: Apache-2.0
//
// What libatoll-core has in place of the kernels for AVX-512: kernels that are never chosen, as no
// CPU is found to have the features that they need.
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/depthwise/depthwise_kernel.h"
#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/row_loops/row_loops.h"

namespace atollrt {

const bool kHasAvx512Kernels = false;

const DepthwiseKernel DepthwiseAvx512Vnni = {};
const GemmKernel GemmAvx512Vnni = {};
const RowLoops kRowLoopsAvx512Vnni = {};

void CombinePairsAvx512Vnni(const PairParams& params, const uint8_t* x1, const uint8_t* x2,
                            uint8_t* y, int64_t count) {
  CombinePairsReference(params, x1, x2, y, count);
}

}  // namespace atollrt
