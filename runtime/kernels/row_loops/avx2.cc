// SPDX-License-Identifier: Apache-2.0
#define ATOLL_ROW_LOOPS_NAME kRowLoopsAvx2
#include "runtime/kernels/row_loops/row_loops.inc"
