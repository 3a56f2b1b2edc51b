// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

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

}  // namespace atollcmd
