// SPDX-License-Identifier: Apache-2.0
//
// Sweeper: what one of a fleet has to do now and then, whoever it is. Jobs that were given to
// workers too often get an error as their result; jobs that stayed in the queue although their
// result is there, as they do after servers died, are taken out of it. Any number of them may run.
#pragma once

#include <cstdint>

#include "atoll/status.h"
#include "serve/fleet/connection.h"
#include "serve/fleet/streams.h"

namespace atollserve {

struct SweepCounts {
  int64_t given_up = 0;   // jobs whose result is an error now
  int64_t left_over = 0;  // were in the queue with a result
};

class Sweeper {
 public:
  // What it gets outlives it.
  Sweeper(const FleetConnection* connection, const FleetStreams* streams)
      : connection_(connection), streams_(streams) {}

  // Once. Errors of the servers; what was done until then is done.
  atollrt::Status Sweep(SweepCounts* counts);

 private:
  atollrt::Status GiveUp(SweepCounts* counts) const;
  atollrt::Status TakeOut(SweepCounts* counts);

  const FleetConnection* const connection_;
  const FleetStreams* const streams_;
  uint64_t next_ = 1;  // where looking through the queue goes on
};

}  // namespace atollserve
