// SPDX-License-Identifier: Apache-2.0
//
// FakeClock: time that stands still until a test double moves it. Transports of tests/support move
// it to the deadline of a call that times out, so that no test ever waits for a deadline.
#pragma once

#include <algorithm>
#include <atomic>

#include "runtime/base/clock.h"

namespace atollrt {

class FakeClock {
 public:
  Deadline Now() const { return Deadline(Clock::duration(ticks_.load())); }
  void AdvanceTo(Deadline time) {
    ticks_ = std::max<Clock::rep>(ticks_, time.time_since_epoch().count());
  }
  // For ChipKeeper::Options; the clock must outlive the device.
  NowFunction Function() const {
    return [this] { return Now(); };
  }

 private:
  // Begins now, so that a condition variable that sees its deadlines does not return at once.
  std::atomic<Clock::rep> ticks_{Clock::now().time_since_epoch().count()};
};

}  // namespace atollrt
