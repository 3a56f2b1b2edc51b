// SPDX-License-Identifier: Apache-2.0
#include "examples/camera/latency_recorder.h"

#include <algorithm>

namespace atollrt {

void LatencyRecorder::Add(double milliseconds) {
  const auto value = static_cast<float>(milliseconds);
  if (values_.size() < kCapacity) {
    values_.push_back(value);
  } else {
    values_[count_ % kCapacity] = value;
  }
  max_ = count_ == 0 ? milliseconds : std::max(max_, milliseconds);
  ++count_;
}

LatencySummary LatencyRecorder::Summarize() const {
  LatencySummary summary;
  summary.count = count_;
  if (count_ == 0) return summary;
  std::vector<float> sorted = values_;
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
