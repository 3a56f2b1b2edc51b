// SPDX-License-Identifier: Apache-2.0
#define ATOLL_LOOPS_NAME kLoopsAvx2
#include "runtime/kernels/loops/loops.inc"
