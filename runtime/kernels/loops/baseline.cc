// SPDX-License-Identifier: Apache-2.0
#define ATOLL_LOOPS_NAME kLoopsBaseline
#include "runtime/kernels/loops/loops.inc"
