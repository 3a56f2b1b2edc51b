// SPDX-License-Identifier: Apache-2.0
//
// GemmAvxVnni: VPDPBUSD for CPUs without AVX-512, such as Alder Lake.
#include "runtime/kernels/gemm/tiles256.h"

namespace atollrt {

const GemmKernel GemmAvxVnni = Vnni256Gemm("GemmAvxVnni");

}  // namespace atollrt
