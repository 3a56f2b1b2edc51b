// SPDX-License-Identifier: Apache-2.0
//
// What long work and measurements need: clocks, percentiles, progress, the end by Ctrl-C, and what
// was measured on.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tools/atoll/report.h"

namespace atollcmd {

// Host time on the monotonic clock, in milliseconds since the last lap.
class Stopwatch {
 public:
  double LapMs() {
    const Clock::time_point now = Clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

// The smallest sample that at least `percent` % of the samples do not exceed (nearest rank);
// `sorted` is ascending and not empty.
inline double Percentile(const std::vector<double>& sorted, double percent) {
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

// From now on the first Ctrl-C (or SIGTERM) makes the result true, so that the command can end with
// its report; the second one ends the program.
const std::atomic<bool>& StopOnSignals();

// Whether that has happened.
bool StopWanted();

class Progress {
 public:
  // `what` is being done, "measuring"; in `total` steps called `unit`, 0 if nobody knows how many.
  // Of those that exist at a time the first one speaks. Ends with its last line gone from a
  // terminal.
  explicit Progress(std::string what, int64_t total = 0, std::string unit = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // One more step is done. Cheap: another thread does the talking.
  void Step() { done_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void Speak();
  std::string Line(double seconds) const;

  const std::string what_;
  const int64_t total_;
  const std::string unit_;
  std::atomic<int64_t> done_{0};
  bool speaks_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

// What a measurement was made on: "cpu" (the name of the CPU), "kernels", "logical_cpus", "system",
// and "peak_gmacs": of one core, measured now (peak_loop.h), in 10^9 multiply-accumulates a second.
Json MachineJson();

}  // namespace atollcmd
