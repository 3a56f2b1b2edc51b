// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "atoll/camera/pipeline.h"

namespace atollrt {

// Collects latencies in bounded memory for a LatencySummary. Not thread-safe.
class LatencyRecorder {
 public:
  static constexpr size_t kCapacity = 65536;

  void Add(double milliseconds);
  LatencySummary Summarize() const;

 private:
  std::vector<float> values_;  // a ring once it has kCapacity
  uint64_t count_ = 0;
  double max_ = 0;
};

}  // namespace atollrt
