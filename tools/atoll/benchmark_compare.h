// SPDX-License-Identifier: Apache-2.0
//
// Two reports of `atoll benchmark --json` side by side: for every model, device and number of
// threads that both have, how much longer the second took, and whether that is more than noise.
//
// Samples that follow each other are alike (the same neighbours on the machine, the same clock
// rate), so what is resampled are blocks of kBlock samples: 2,000 times both medians are taken of
// blocks drawn with replacement, which gives the interval that holds 95 % of the ratios. An entry
// is better or worse if the whole interval lies more than 1 % from 1. The same files give the same
// answer.
#pragma once

#include <string>
#include <vector>

#include "tools/atoll/report.h"

namespace CLI {
class App;
}

namespace atollcmd {

// How many samples `atoll benchmark` takes of an entry before it turns to the next one.
inline constexpr int kSamplesPerTurn = 10;

struct TimeRatio {
  double ratio = 1;  // of the medians, second to first
  double low = 1, high = 1;
  std::vector<double> resampled;  // not sorted
};

// Of samples in the order in which they were taken; neither is empty.
TimeRatio CompareTimes(const std::vector<double>& first, const std::vector<double>& second);

// Adds `compare` to `atoll benchmark`.
void AddBenchmarkCompareCommand(CLI::App* benchmark);

}  // namespace atollcmd
