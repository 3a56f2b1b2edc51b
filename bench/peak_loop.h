// SPDX-License-Identifier: Apache-2.0
//
// The yardstick of kernel benchmarks: how many multiplications and additions per second the dot
// product instruction of an ISA does on registers, here and now. Shared machines change their
// speed from minute to minute; shares of the peak are steadier than MAC/s.
#pragma once

#include <benchmark/benchmark.h>

#include "runtime/kernels/cpu_features.h"

namespace atollrt {

// The best of a few short loops, run now, of VPDPBUSD (AVX-512 VNNI, AVX-VNNI), VPMADDWD and VPADDD
// (AVX2), SMMLA, SDOT, or SMULL and SADALP (NEON); 0 for the baseline.
double PeakMacsPerSecond(CpuFeatures features);

// Sets the counters "MAC/s" and "%peak" of a benchmark whose iteration does `macs`.
void ReportMacs(benchmark::State& state, double macs, CpuFeatures features);

}  // namespace atollrt
