// SPDX-License-Identifier: Apache-2.0
#include "bench/peak_loop.h"

#include "tools/atoll/peak_loop.h"

namespace atollrt {

double PeakMacsPerSecond(CpuFeatures features) {
  return atollcmd::PeakMacsPerSecond(CpuFeaturesName(features));
}

void ReportMacs(benchmark::State& state, double macs, CpuFeatures features) {
  const double total = macs * static_cast<double>(state.iterations());
  state.counters["MAC/s"] = benchmark::Counter(total, benchmark::Counter::kIsRate);
  const double peak = PeakMacsPerSecond(features);
  if (peak > 0) {
    state.counters["%peak"] = benchmark::Counter(100 * total / peak, benchmark::Counter::kIsRate);
  }
}

}  // namespace atollrt
