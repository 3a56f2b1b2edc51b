// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/measure.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/peak_loop.h"
#include "tools/atoll/report.h"

namespace atollcmd {
namespace {

// x86 has a "model name", most ARM boards a "Model" at the end.
std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  std::string line, board;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) return line.substr(colon + 2);
    if (line.starts_with("Model")) board = line.substr(colon + 2);
  }
  return board.empty() ? "unknown" : board;
}

std::atomic<bool> g_stop = false;

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
  if (*end == '\0' && seconds == 0) pace->first = 0;
  return true;
}

}  // namespace

Json MachineJson() {
  const char* kernels = "";
  ThrowIfError(AtollCpuName(&kernels), Activity::kOpeningDevice, "cannot use the CPU");
  utsname system = {};
  uname(&system);
  return {{"cpu", CpuModel()},
          {"kernels", kernels},
          {"logical_cpus", std::thread::hardware_concurrency()},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"peak_gmacs", std::round(PeakMacsPerSecond(kernels) / 1e7) / 100}};
}

const std::atomic<bool>& StopOnSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { g_stop = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return g_stop;
}

bool StopWanted() { return g_stop; }

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
  const auto end_within = [&](double time) {
    return ended_.wait_for(lock, std::chrono::duration<double>(time), [&] { return end_; });
  };
  // What is said at once is said however soon the work ends.
  while (seconds == 0 || !end_within(seconds)) {
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
  if (total_ > 0) {
    line += fmt::format(", {} of {} {}", done, total_, unit_);
  } else if (!unit_.empty()) {
    line += fmt::format(", {} {}", done, unit_);
  }
  return line + fmt::format(", {:.0f} s", seconds);
}

}  // namespace atollcmd
