// SPDX-License-Identifier: Apache-2.0
//
// DepthwiseAvxVnni: VPDPBUSD for CPUs without AVX-512, such as Alder Lake.
#include "runtime/kernels/depthwise/cells256.h"

namespace atollrt {

const DepthwiseKernel DepthwiseAvxVnni = Vnni256Depthwise("DepthwiseAvxVnni");

}  // namespace atollrt
