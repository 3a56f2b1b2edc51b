// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/latency_window.h"

#include <algorithm>

namespace atollserve {
namespace {

constexpr size_t kMostLatencies = 1000;
constexpr auto kLatencyAge = std::chrono::seconds(10);

}  // namespace

void LatencyWindow::Add(Time ended, int64_t us) {
  if (entries_.size() < kMostLatencies) {
    entries_.push_back({ended, us});
    return;
  }
  entries_[oldest_] = {ended, us};
  oldest_ = (oldest_ + 1) % kMostLatencies;
}

Latencies LatencyWindow::At(Time now) const {
  std::vector<int64_t> us;
  for (const Entry& entry : entries_) {
    if (now - entry.ended <= kLatencyAge) us.push_back(entry.us);
  }
  if (us.empty()) return {};
  std::sort(us.begin(), us.end());
  // The least that so many in a hundred do not exceed.
  const auto percentile = [&](size_t percent) { return us[(us.size() * percent + 99) / 100 - 1]; };
  return {
      .count = static_cast<int64_t>(us.size()), .p50_us = percentile(50), .p99_us = percentile(99)};
}

}  // namespace atollserve
