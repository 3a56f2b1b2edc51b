// SPDX-License-Identifier: Apache-2.0
//
// Kernel benchmarks as shares of the peak (tools/atoll/peak_loop.h).
#pragma once

#include <benchmark/benchmark.h>

#include "runtime/kernels/cpu_features.h"

namespace atollrt {

// What the lowest level does that has `features`, measured now; 0 for the baseline.
double PeakMacsPerSecond(CpuFeatures features);

// Sets the counters "MAC/s" and "%peak" of a benchmark whose iteration does `macs`.
void ReportMacs(benchmark::State& state, double macs, CpuFeatures features);

}  // namespace atollrt
