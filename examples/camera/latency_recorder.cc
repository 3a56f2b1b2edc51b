// SPDX-License-Identifier: Apache-2.0
#include "examples/camera/latency_recorder.h"

#include <algorithm>

namespace atollrt {

void LatencyRecorder::Add(double milliseconds) {
  values_[count_ % kCapacity] = static_cast<float>(milliseconds);
  max_ = count_ == 0 ? milliseconds : std::max(max_, milliseconds);
  ++count_;
}

LatencySummary LatencyRecorder::Summarize(size_t latest) const {
  LatencySummary summary;
  summary.count = count_;
  if (count_ == 0) return summary;
  std::vector<float> sorted(static_cast<size_t>(std::min<uint64_t>({count_, latest, kCapacity})));
  for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = values_[(count_ - 1 - i) % kCapacity];
  std::sort(sorted.begin(), sorted.end());
  // The smallest value that at least `percent` of all values do not exceed.
  const auto nearest_rank = [&](size_t percent) {
    const size_t rank = (sorted.size() * percent + 99) / 100;
    return static_cast<double>(sorted[rank - 1]);
  };
  summary.p50 = nearest_rank(50);
  summary.p90 = nearest_rank(90);
  summary.p99 = nearest_rank(99);
  summary.max = max_;
  return summary;
}

}  // namespace atollrt
