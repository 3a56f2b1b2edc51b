// SPDX-License-Identifier: Apache-2.0
#include "camera/pipeline/latency_recorder.h"

#include <algorithm>

namespace atollrt {

void LatencyRecorder::Add(double milliseconds) {
  values_[count_ % kCapacity] = static_cast<float>(milliseconds);
  max_ = count_ == 0 ? milliseconds : std::max(max_, milliseconds);
  ++count_;
}

LatencyRecorder::Sample LatencyRecorder::Take(size_t latest) const {
  Sample sample = {{}, count_, max_};
  const size_t size = static_cast<size_t>(std::min<uint64_t>({count_, latest, kCapacity}));
  const size_t end = count_ % kCapacity;  // of the ring's newer part
  const size_t newer = count_ < kCapacity ? size : std::min(size, end);
  const auto ring = values_.begin();
  const auto part = [&](size_t first, size_t last) {
    sample.latest.insert(sample.latest.end(), ring + static_cast<ptrdiff_t>(first),
                         ring + static_cast<ptrdiff_t>(last));
  };
  sample.latest.reserve(size);
  const size_t stop = count_ < kCapacity ? static_cast<size_t>(count_) : end;
  part(stop - newer, stop);
  part(kCapacity - (size - newer), kCapacity);
  return sample;
}

LatencySummary LatencyRecorder::Sample::Summarize() && {
  LatencySummary summary;
  summary.count = count;
  if (count == 0) return summary;
  std::sort(latest.begin(), latest.end());
  // The smallest value that at least `percent` of all values do not exceed.
  const auto nearest_rank = [&](size_t percent) {
    const size_t rank = (latest.size() * percent + 99) / 100;
    return static_cast<double>(latest[rank - 1]);
  };
  summary.p50 = nearest_rank(50);
  summary.p90 = nearest_rank(90);
  summary.p99 = nearest_rank(99);
  summary.max = max;
  return summary;
}

}  // namespace atollrt
