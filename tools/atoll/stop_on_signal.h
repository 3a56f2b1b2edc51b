// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace atollcmd {

// From now on the first Ctrl-C (or SIGTERM) makes the result true, so that the command can end with
// its report; the second one ends the program.
const std::atomic<bool>& StopOnSignals();

}  // namespace atollcmd
