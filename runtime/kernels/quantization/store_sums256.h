// SPDX-License-Identifier: Apache-2.0
//
// Sums in memory to bytes, for all kernels of 256-bit registers: on a CPU with AVX2 and FMA.
#pragma once

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// RequantizePlain of at most 16 columns, the first of which is a multiple of 16, or of 8 where
// there are at most 8. Sums of 8 columns are read at once. The columns are laid out for
// FitFloatColumnAvx2.
void StoreSums256(const OutputColumns& columns, const RequantizeArgs& args);

}  // namespace atollrt
