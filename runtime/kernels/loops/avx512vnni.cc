// SPDX-License-Identifier: Apache-2.0
#define ATOLL_LOOPS_NAME kLoopsAvx512Vnni
#include "runtime/kernels/loops/loops.inc"
