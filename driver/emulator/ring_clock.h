// SPDX-License-Identifier: Apache-2.0
//
// RingClock: the time of a device that is fed by a ring, where requests overlap (docs/protocol.md
// §6, "Time"). The link is full duplex: the way out, the core and the way in are three engines that
// serve programs in their order. All times are modelled, in device cycles. Not thread-safe.
#pragma once

#include <cstdint>

#include "driver/isa/timing.h"

namespace atollrt {

// What the memories of the device's two incoming streams hold together.
inline constexpr uint64_t kStreamMemoryBytes = 256 << 10;

// What a program takes of each engine.
struct ProgramTimes {
  // Of a device that has nothing else to do: SummarizeProgram's.
  uint64_t total = 0;      // T
  uint64_t computed = 0;   // C
  uint64_t delivered = 0;  // D
  uint64_t link_out = 0;   // inputs and streamed parameters on their way to the device
  uint64_t link_in = 0;    // outputs on their way to the host
  // W: C if its inputs came while another program ran, kStreamMemoryBytes of them.
  uint64_t fed = 0;
};
ProgramTimes MakeProgramTimes(const ScheduleSummary& alone, const ScheduleSummary& fed);

class RingClock {
 public:
  // When the last event was written.
  uint64_t now() const { return now_; }

  // The program behind those so far, whose last doorbell rang at `rung`, is done: when its event is
  // written, which is now.
  uint64_t Complete(const ProgramTimes& program, uint64_t rung);

  // What comes later waits until the core has done what came before.
  void WaitForCore();

 private:
  uint64_t now_ = 0;
  // When each engine is free.
  uint64_t link_out_ = 0, core_ = 0, link_in_ = 0;
};

}  // namespace atollrt
