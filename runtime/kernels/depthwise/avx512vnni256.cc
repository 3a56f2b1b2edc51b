// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseAvx512Vnni256: the code of DepthwiseAvxVnni where there is only the encoding of AVX-512,
// for libatoll-core, and to test it there.
#include "runtime/kernels/depthwise/cells256.h"

namespace atollrt {

const DepthwiseKernel DepthwiseAvx512Vnni256 = Vnni256Depthwise("DepthwiseAvx512Vnni256");

}  // namespace atollrt
