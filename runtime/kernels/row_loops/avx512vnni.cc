// SPDX-License-Identifier: Apache-2.0
//
// Tables and divisions gain half as much again by wider vectors; the others next to nothing.
#define ATOLL_ROW_LOOPS_NAME kRowLoopsAvx512Vnni
#define ATOLL_ROW_LOOPS_REST kRowLoopsAvx2
#include "runtime/kernels/row_loops/row_loops.inc"
