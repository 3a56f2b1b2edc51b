// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/row_loops/row_loops.h"

#include "runtime/kernels/cpu_features.h"

namespace atollrt {

const RowLoops& ChooseRowLoops(uint32_t features) {
#define ATOLL_ROW_LOOPS(name, needed) \
  if (Supports(features, needed)) return name;
#include "runtime/kernels/row_loops/kernels.inc"
#undef ATOLL_ROW_LOOPS
  return kRowLoopsBaseline;
}

}  // namespace atollrt
