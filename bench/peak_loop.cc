// SPDX-License-Identifier: Apache-2.0
#include "bench/peak_loop.h"

#include <algorithm>
#include <span>

#include "tools/atoll/peak_loop.h"

namespace atollrt {

double PeakMacsPerSecond(CpuFeatures features) {
  // What a kernel needs may be less than a level has.
  const std::span<const CpuLevel> levels = CpuLevels();
  const auto level = std::find_if(levels.rbegin(), levels.rend(), [&](const CpuLevel& candidate) {
    return Supports(candidate.features, features);
  });
  return level == levels.rend() ? 0 : atollcmd::PeakMacsPerSecond(level->name);
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
