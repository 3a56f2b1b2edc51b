// SPDX-License-Identifier: Apache-2.0
//
// Tables and divisions gain half as much again by wider vectors; the others next to nothing.
#define ATOLL_LOOPS_NAME kLoopsAvx512Vnni
#define ATOLL_LOOPS_REST kLoopsAvx2
#include "runtime/kernels/loops/loops.inc"
