// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "atoll/camera/status.h"

namespace atollrt {

// Collects latencies in memory that is taken once, for a LatencySummary. Not thread-safe.
class LatencyRecorder {
 public:
  static constexpr size_t kCapacity = 16384;

  LatencyRecorder() : values_(kCapacity) {}

  void Add(double milliseconds);

  // What a summary is made of. Quick to take, so that others can go on adding while it is made.
  struct Sample {
    std::vector<float> latest;
    uint64_t count = 0;
    double max = 0;
    LatencySummary Summarize() &&;
  };
  // The latest values, at least 1 and at most kCapacity; count and max of all.
  Sample Take(size_t latest = kCapacity) const;
  LatencySummary Summarize() const { return Take().Summarize(); }

 private:
  std::vector<float> values_;  // a ring
  uint64_t count_ = 0;
  double max_ = 0;
};

}  // namespace atollrt
