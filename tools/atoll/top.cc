// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <span>

#include "atoll/delegate.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/report.h"
#include "tools/atoll/stop_on_signal.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

struct TopOptions {
  bool once = false;
  double interval_seconds = 1;
  bool json = false;
};

// What the counters of the last second come to.
struct Rates {
  double requests_per_second = 0;
  double duty_cycle = 0;           // measured: share of the time in which a request had the device
  double modelled_duty_cycle = 0;  // modelled: device time per time
  double array_utilisation = 0;    // modelled: of the array's peak, while the device works
  double bytes_to_device_per_second = 0;
  double bytes_from_device_per_second = 0;
  double memory_share = 0;  // of on-chip memory in use
};

Rates RatesOf(const AtollActivity& activity) {
  // Counters come from other processes and may hold anything; no division by 0.
  const auto ratio = [](double part, double whole) { return whole > 0 ? part / whole : 0.0; };
  const AtollActivityCounts& recent = activity.recent;
  const double seconds = activity.recent_seconds;
  const double cycles = static_cast<double>(recent.device_cycles);
  const double peak = static_cast<double>(activity.array_rows) * activity.array_columns;
  return {
      .requests_per_second = ratio(static_cast<double>(recent.requests), seconds),
      .duty_cycle = ratio(recent.busy_seconds, seconds),
      .modelled_duty_cycle = ratio(cycles, static_cast<double>(activity.clock_hz) * seconds),
      .array_utilisation = ratio(static_cast<double>(recent.macs), cycles * peak),
      .bytes_to_device_per_second = ratio(static_cast<double>(recent.bytes_to_device), seconds),
      .bytes_from_device_per_second = ratio(static_cast<double>(recent.bytes_from_device), seconds),
      .memory_share = ratio(static_cast<double>(activity.memory_used_bytes),
                            static_cast<double>(activity.memory_bytes))};
}

std::span<const AtollActivity> Look() {
  const AtollActivity* list = nullptr;
  int32_t count = 0;
  const AtollStatus status = AtollListActivity(&list, &count);
  if (status == ATOLL_NOT_FOUND) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("{}; unset it to see devices", AtollLastError()));
  }
  ThrowIfError(status, Activity::kOpeningDevice, "cannot list what devices do");
  return {list, static_cast<size_t>(count)};
}

Json CountsJson(const AtollActivityCounts& counts) {
  return {{"requests", counts.requests},
          {"failures", counts.failures},
          {"busy_seconds", counts.busy_seconds},
          {"device_cycles", counts.device_cycles},
          {"macs", counts.macs},
          {"bytes_to_device", counts.bytes_to_device},
          {"bytes_from_device", counts.bytes_from_device}};
}

Json ReportJson(std::span<const AtollActivity> activities) {
  Json report = NewReport("top");
  report["activities"] = Json::array();
  for (const AtollActivity& activity : activities) {
    const Rates rates = RatesOf(activity);
    report["activities"].push_back({{"pid", activity.pid},
                                    {"command", activity.command},
                                    {"device", activity.device},
                                    {"open_seconds", activity.open_seconds},
                                    {"running_seconds", activity.running_seconds},
                                    {"memory_bytes", activity.memory_bytes},
                                    {"memory_used_bytes", activity.memory_used_bytes},
                                    {"recent_seconds", activity.recent_seconds},
                                    {"requests_per_second", rates.requests_per_second},
                                    {"duty_cycle", rates.duty_cycle},
                                    {"modelled_duty_cycle", rates.modelled_duty_cycle},
                                    {"modelled_array_utilisation", rates.array_utilisation},
                                    {"step_ms",
                                     {{"min", RoundedMs(activity.step_min_seconds * 1e3)},
                                      {"mean", RoundedMs(activity.step_mean_seconds * 1e3)},
                                      {"max", RoundedMs(activity.step_max_seconds * 1e3)}}},
                                    {"recent", CountsJson(activity.recent)},
                                    {"total", CountsJson(activity.total)}});
  }
  return report;
}

// Columns of the terminal; without one, lines are as long as they need to be.
size_t LineWidth(bool in_place) {
  winsize size = {};
  const bool known = in_place && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : SIZE_MAX;
}

std::string StepText(const AtollActivity& activity) {
  if (activity.recent.requests > 0) {
    return fmt::format("{:>9.3f} {:>9.3f} {:>9.3f}", activity.step_min_seconds * 1e3,
                       activity.step_mean_seconds * 1e3, activity.step_max_seconds * 1e3);
  }
  if (activity.running_seconds > 0) {
    return fmt::format("{:>29}", fmt::format("running for {:.1f} s", activity.running_seconds));
  }
  return fmt::format("{:>9} {:>9} {:>9}", "-", "-", "-");
}

std::string ReportText(std::span<const AtollActivity> activities, size_t width) {
  std::string text;
  const auto add_line = [&](const std::string& line) {
    text += line.substr(0, width);
    text += '\n';
  };
  add_line(fmt::format(
      "{:>7} {:<12} {:>8} {:>6} {:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>6} {:>6}  {}", "PID",
      "DEVICE", "REQ/S", "DUTY", "MODELLED", "ARRAY", "MIN ms", "MEAN ms", "MAX ms", "OUT MB/s",
      "IN MB/s", "MEM", "FAILED", "COMMAND"));
  for (const AtollActivity& activity : activities) {
    const Rates rates = RatesOf(activity);
    add_line(fmt::format(
        "{:>7} {:<12} {:>8.1f} {:>5.1f}% {:>8.1f}% {:>5.1f}% {} {:>9.2f} {:>8.2f} {:>5.1f}% {:>6}  "
        "{}",
        activity.pid, activity.device, rates.requests_per_second, rates.duty_cycle * 100,
        rates.modelled_duty_cycle * 100, rates.array_utilisation * 100, StepText(activity),
        rates.bytes_to_device_per_second / 1e6, rates.bytes_from_device_per_second / 1e6,
        rates.memory_share * 100, activity.total.failures, activity.command));
  }
  if (activities.empty()) text += "no device is in use\n";
  return text;
}

// On a terminal the table stays in place.
void Show(std::span<const AtollActivity> activities, bool in_place) {
  const std::string text = ReportText(activities, LineWidth(in_place));
  if (!in_place) {
    PrintText(text);
    return;
  }
  PrintText("\x1b[H\x1b[J" + text +
            "\nOver the last second. Measured on the host: requests, DUTY (one has the device), "
            "times of requests.\nModelled: MODELLED (device time per second), ARRAY (share of its "
            "peak). Ctrl-C ends.\n");
}

void RunTop(const TopOptions& options) {
  const std::atomic<bool>& stop = StopOnSignals();
  const bool in_place = !options.once && !options.json && isatty(STDOUT_FILENO) != 0;
  if (in_place) PrintText("\x1b[2J");
  for (;;) {
    const std::span<const AtollActivity> activities = Look();
    options.json ? PrintReport(ReportJson(activities)) : Show(activities, in_place);
    if (options.once || stop) return;
    poll(nullptr, 0, static_cast<int>(options.interval_seconds * 1e3));  // a signal ends it
    if (stop) return;
  }
}

}  // namespace

void AddTopCommand(CLI::App* app) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command =
      app->add_subcommand("top", "What the devices of all your processes are doing right now.");
  command->add_flag("--once", options->once, "print one table and end");
  command->add_option("--interval", options->interval_seconds, "seconds between two tables")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one line of JSON on stdout for each table");
  command->footer(
      "One line for each device that a process has open, emulated ones included, over the last\n"
      "second. Measured on the host: REQ/S, DUTY (share of the time in which a request has the\n"
      "device), MIN, MEAN and MAX (from the start of a request to its end). Modelled when the\n"
      "device is the emulator: MODELLED (device time per second) and ARRAY (multiply-accumulates\n"
      "as a share of what the array could do in the cycles that the device took). FAILED counts\n"
      "since the device was opened, as the rest of \"total\" in JSON.\n"
      "ATOLL_ACTIVITY=off keeps a process from being listed; docs/activity.md has the details.\n"
      "\n"
      "Examples:\n"
      "  atoll top\n"
      "  atoll top --once --json\n"
      "  atoll top --interval 5");
  command->callback([options] { RunTop(*options); });
}

}  // namespace atollcmd
