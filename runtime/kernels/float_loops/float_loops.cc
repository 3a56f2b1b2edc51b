// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/float_loops/float_loops.h"

#include "runtime/kernels/cpu_features.h"

namespace atollrt {

const FloatLoops& ChooseFloatLoops(uint32_t features) {
#define ATOLL_FLOAT_LOOPS(name, needed) \
  if (Supports(features, needed)) return name;
#include "runtime/kernels/float_loops/kernels.inc"
#undef ATOLL_FLOAT_LOOPS
  return kFloatLoopsBaseline;
}

}  // namespace atollrt
