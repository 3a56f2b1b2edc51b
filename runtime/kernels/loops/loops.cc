// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/loops/loops.h"

#include "runtime/kernels/cpu_features.h"

namespace atollrt {

const Loops& ChooseLoops(uint32_t features) {
#define ATOLL_LOOPS(name, needed) \
  if (Supports(features, needed)) return name;
#include "runtime/kernels/loops/kernels.inc"
#undef ATOLL_LOOPS
  return kLoopsBaseline;
}

}  // namespace atollrt
