// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/stop_on_signal.h"

#include <csignal>

namespace atollcmd {
namespace {

std::atomic<bool> g_stop = false;

}  // namespace

const std::atomic<bool>& StopOnSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { g_stop = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return g_stop;
}

}  // namespace atollcmd
