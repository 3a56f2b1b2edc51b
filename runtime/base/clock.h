// SPDX-License-Identifier: Apache-2.0
//
// The clock of everything that waits. (The camera's is the PipelineClock of its installed header.)
#pragma once

#include <chrono>
#include <functional>

namespace atollrt {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
// The clock against which deadlines are set; tests bring their own.
using NowFunction = std::function<Deadline()>;

}  // namespace atollrt
