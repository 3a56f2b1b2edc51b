// SPDX-License-Identifier: Apache-2.0
//
// Linked with the kernels for AVX-512 (avx512vnni.cc of each operator); no_avx512.cc is what stands
// in for all of them.
#include "runtime/kernels/cpu_features.h"

namespace atollrt {

const bool kHasAvx512Kernels = true;

}  // namespace atollrt
