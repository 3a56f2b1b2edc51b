// SPDX-License-Identifier: Apache-2.0
//
// LatencyWindow: how long things take now: those that ended in the last ten seconds, the last
// thousand of them at most. Used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace atollserve {

struct Latencies {
  int64_t count = 0;
  int64_t p50_us = 0;  // 0 without any
  int64_t p99_us = 0;
};

class LatencyWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void Add(Time ended, int64_t us);
  Latencies At(Time now) const;

 private:
  struct Entry {
    Time ended;
    int64_t us = 0;
  };
  std::vector<Entry> entries_;
  size_t oldest_ = 0;  // when there are as many as there may be
};

}  // namespace atollserve
