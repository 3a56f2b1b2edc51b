// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/ring_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

// 100 cycles on the way out, of which 40 pass before it computes for 300 more; 50 on the way in, of
// which 10 are over when END is.
constexpr ProgramTimes kSimple{
    .total = 440, .computed = 400, .delivered = 440, .link_out = 100, .link_in = 50, .fed = 360};

TEST(RingClock, AProgramAloneTakesItsTime) {
  RingClock clock;
  EXPECT_EQ(clock.now(), 0u);
  EXPECT_EQ(clock.Complete(kSimple, 0), 440u);
  EXPECT_EQ(clock.Complete(kSimple, 440), 880u);
  EXPECT_EQ(clock.Complete(kSimple, 880), 1320u);
  EXPECT_EQ(clock.now(), 1320u);
}

TEST(RingClock, TheCoreGoesFromOneProgramToTheNext) {
  RingClock clock;
  clock.Complete(kSimple, 0);
  EXPECT_EQ(clock.Complete(kSimple, 0), 400u + 360 + 40);
  EXPECT_EQ(clock.Complete(kSimple, 0), 400u + 2 * 360 + 40);
}

TEST(RingClock, TheWayOutIsServedInOrder) {
  ProgramTimes times = kSimple;
  times.link_out = 390;
  RingClock clock;
  clock.Complete(times, 0);
  EXPECT_EQ(clock.Complete(times, 0), 390u + 440);
  EXPECT_EQ(clock.Complete(times, 0), 2u * 390 + 440);
}

TEST(RingClock, TheWayInIsServedInOrder) {
  ProgramTimes times = kSimple;
  times.link_in = 500;
  times.delivered = times.total = 900;
  RingClock clock;
  EXPECT_EQ(clock.Complete(times, 0), 900u);
  EXPECT_EQ(clock.Complete(times, 0), 1400u);
  EXPECT_EQ(clock.Complete(times, 0), 1900u);
}

// One that has no outputs is done before those of the one before it are with the host.
TEST(RingClock, EventsAreInOrder) {
  ProgramTimes slow_outputs = kSimple;
  slow_outputs.link_in = 5000;
  slow_outputs.delivered = slow_outputs.total = 5400;
  const ProgramTimes none{.total = 100, .computed = 100, .link_out = 10, .fed = 64};
  RingClock clock;
  EXPECT_EQ(clock.Complete(slow_outputs, 0), 5400u);
  EXPECT_EQ(clock.Complete(none, 0), 5400u);
  EXPECT_EQ(clock.Complete(none, 5400), 5500u);
}

TEST(RingClock, WhatComesAfterInstructionsWaitsForTheCore) {
  RingClock clock;
  clock.Complete(kSimple, 0);
  clock.WaitForCore();
  EXPECT_EQ(clock.Complete(kSimple, 0), 400u + 440);
}

// Programs of any kind: those that wait for each other take the sum of their times; four at a time
// take less, but never less than any of the engines needs.
TEST(RingClock, NothingIsFasterThanItsBottleneckOrSlowerThanOneByOne) {
  Rng rng(TestSeed(12));
  for (int round = 0; round < 300; ++round) {
    RingClock alone, overlapped;
    uint64_t sum = 0, out = 0, core = 0, in = 0;
    std::vector<uint64_t> events;
    for (int i = 0; i < 40; ++i) {
      const auto any = [&](int64_t most) { return static_cast<uint64_t>(rng.Int(0, most)); };
      ProgramTimes times;
      times.fed = 64 + any(1000);
      times.link_out = any(1000);
      times.computed = std::max(times.fed, times.link_out) + any(100);
      times.link_in = rng.OneIn(4) ? 0 : any(1000);
      times.delivered = times.link_in == 0 ? 0 : times.computed - 60 + times.link_in;
      times.total = std::max(times.computed, times.delivered);
      sum += times.total;
      out += times.link_out;
      core += times.fed;
      in += times.link_in;
      EXPECT_EQ(alone.Complete(times, alone.now()), sum);
      events.push_back(overlapped.Complete(times, i < 4 ? 0 : events[events.size() - 4]));
      ASSERT_GE(events.back(), std::max({out, core, in}));
      ASSERT_LE(events.back(), sum);
      ASSERT_TRUE(i == 0 || events.back() >= events[events.size() - 2]);
    }
  }
}

}  // namespace
}  // namespace atollrt
