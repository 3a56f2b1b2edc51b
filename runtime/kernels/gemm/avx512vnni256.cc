// SPDX-License-Identifier: Apache-2.0
//
// GemmAvx512Vnni256: the code of GemmAvxVnni where there is only the encoding of AVX-512, for
// libatoll-core, and to test it there.
#include "runtime/kernels/gemm/tiles256.h"

namespace atollrt {

const GemmKernel GemmAvx512Vnni256 = Vnni256Gemm("GemmAvx512Vnni256");

}  // namespace atollrt
