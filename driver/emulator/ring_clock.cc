// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/ring_clock.h"

#include <algorithm>

namespace atollrt {

ProgramTimes MakeProgramTimes(const ScheduleSummary& alone, const ScheduleSummary& fed) {
  return {.total = alone.total,
          .computed = alone.computed,
          .delivered = alone.delivered,
          .link_out = alone.link_out + alone.parameters,
          .link_in = alone.link_in,
          .fed = fed.computed};
}

uint64_t RingClock::Complete(const ProgramTimes& program, uint64_t rung) {
  const uint64_t start = std::max(link_out_, rung);
  link_out_ = start + program.link_out;
  core_ = std::max(core_ + program.fed, start + program.computed);
  if (program.delivered > 0) {
    // What is still on its way when the core is done, or already was there before.
    const uint64_t behind = core_ - program.computed + program.delivered;
    link_in_ = std::max(link_in_ + program.link_in, behind);
  }
  now_ = std::max({now_, core_, link_in_});
  return now_;
}

void RingClock::WaitForCore() { link_out_ = std::max(link_out_, core_); }

}  // namespace atollrt
