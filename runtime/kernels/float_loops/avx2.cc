// SPDX-License-Identifier: Apache-2.0
#define ATOLL_FLOAT_LOOPS_NAME kFloatLoopsAvx2
#include "runtime/kernels/float_loops/float_loops.inc"
