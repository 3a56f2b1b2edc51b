// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tools/atoll/report.h"

namespace atollcmd {
namespace {

constexpr double kFirstSeconds = 2;
constexpr double kTerminalSeconds = 0.5;  // where a line takes the place of the one before
constexpr double kLogSeconds = 5;

// Whether one of them speaks.
std::atomic<bool> g_taken = false;

struct Pace {
  double first = kFirstSeconds;
  double next = kLogSeconds;
};

// Nothing: be silent.
bool ReadPace(bool is_terminal, Pace* pace) {
  if (is_terminal) pace->next = kTerminalSeconds;
  const char* const text = std::getenv("ATOLL_PROGRESS");
  if (text == nullptr || *text == '\0') return true;
  if (std::string_view(text) == "off") return false;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end == '\0' && seconds >= 1e-3 && seconds <= 3600) pace->first = pace->next = seconds;
  return true;
}

}  // namespace

Progress::Progress(std::string what, int64_t total, std::string unit)
    : what_(std::move(what)), total_(total), unit_(std::move(unit)) {
  speaks_ = !g_taken.exchange(true);
  if (speaks_) thread_ = std::thread([this] { Speak(); });
}

Progress::~Progress() {
  if (!speaks_) return;
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  thread_.join();
  g_taken = false;
}

void Progress::Speak() {
  using Clock = std::chrono::steady_clock;
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  Pace pace;
  if (!ReadPace(is_terminal, &pace)) return;
  const Clock::time_point begin = Clock::now();
  double seconds = pace.first;
  bool spoke = false;
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return end_; })) {
    const std::string line = Line(std::chrono::duration<double>(Clock::now() - begin).count());
    if (is_terminal) {
      fmt::print(stderr, "\r{}\033[K", line);
    } else {
      fmt::print(stderr, "{}\n", line);
    }
    std::fflush(stderr);
    spoke = true;
    seconds = pace.next;
  }
  if (spoke && is_terminal) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }
}

std::string Progress::Line(double seconds) const {
  const int64_t done = done_.load(std::memory_order_relaxed);
  std::string line = fmt::format("atoll: {}", Printable(what_));
  if (total_ > 0) line += fmt::format(", {} of {} {}", done, total_, unit_);
  return line + fmt::format(", {:.0f} s", seconds);
}

}  // namespace atollcmd
