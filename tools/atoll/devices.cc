// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "atoll/broker.h"
#include "atoll/camera.h"
#include "atoll/delegate.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/mending.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

struct DevicesOptions {
  bool json = false;
};

void RunDevices(const DevicesOptions& options) {
  const AtollDeviceInfo* list = nullptr;
  int32_t count = 0;
  ThrowIfError(AtollListDevices(&list, &count), Activity::kOpeningDevice, "cannot list devices");
  Json devices = Json::array();
  std::string text;
  for (const AtollDeviceInfo& device : std::span(list, count)) {
    text += fmt::format("{} {:<12} {}{}\n", device.is_default ? '*' : ' ', device.name,
                        device.description, device.available ? "" : " (cannot be opened now)");
    devices.push_back({{"name", device.name},
                       {"description", device.description},
                       {"available", device.available != 0},
                       {"auto", device.is_default != 0}});
  }
  text += "* --device auto takes this one; emu:FILE.json takes a profile of your own\n";
  Json report = NewReport("devices");
  report["devices"] = std::move(devices);
  Print(
      options.json, [&] { return report; }, [&] { return text; });
}

struct DoctorOptions {
  std::string device = "auto";
  std::string root;
  bool fix = false;
  bool yes = false;
  bool json = false;
};

Json FindingJson(const char* level, const char* code, const std::string& device,
                 const std::string& message, const std::string& fix) {
  return {{"level", level}, {"code", code}, {"device", device}, {"message", message}, {"fix", fix}};
}

// What there is to say about cameras. None is an error: most commands do without.
Json LookAtCameras(const std::string& root) {
  Json findings = Json::array();
  for (const atollrt::CameraDevice& camera : atollrt::ListCameras(root)) {
    const std::string message = fmt::format("a camera, {}", camera.name);
    if (!camera.has_node) {
      findings.push_back(FindingJson("warning", "camera_no_node", camera.path,
                                     message + ", which the kernel has, but here is no node of it",
                                     fmt::format("give the container --device {}", camera.path)));
    } else if (!camera.permitted) {
      findings.push_back(
          FindingJson("warning", "camera_no_permission", camera.path,
                      fmt::format("{}, which this user may not open; the group '{}' may", message,
                                  camera.group),
                      fmt::format("sudo usermod -aG {} $USER, then log in again", camera.group)));
    } else {
      findings.push_back(FindingJson("fine", "camera", camera.path, message, ""));
    }
  }
  if (findings.empty()) {
    findings.push_back(
        FindingJson("note", "no_camera", "", "the kernel shows no camera",
                    "plug one in; 'atoll camera' takes files, pipes and network cameras, too"));
  }
  return findings;
}

const char* LevelName(AtollFindingLevel level) {
  constexpr const char* kNames[] = {"fine", "note", "warning", "error"};
  return kNames[level];
}

// Two lines: what is the case, and what to do.
std::string Paragraph(const std::string& level, const std::string& device,
                      const std::string& message, const std::string& fix) {
  std::string text = fmt::format("{:<8} {}{}{}\n", level, Printable(device),
                                 device.empty() ? "" : ": ", Printable(message));
  if (!fix.empty()) text += fmt::format("{:<8} {}\n", "", Printable(fix));
  return text;
}

// What one device after the other, or the CPU, made of the self-test.
std::string SelfTestText(std::span<const AtollSelfTestResult> results) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < results.size(); begin = end) {
    const std::string device = results[begin].device;
    int passed = 0;
    double seconds = 0;
    std::string failures;
    for (; end < results.size() && device == results[end].device; ++end) {
      const AtollSelfTestResult& result = results[end];
      seconds += result.seconds;
      passed += result.status == ATOLL_OK;
      if (result.status != ATOLL_OK) {
        failures += fmt::format("{:<8} {}\n", "", Printable(result.failure));
      }
    }
    text += Paragraph(failures.empty() ? "passed" : "failed", device,
                      fmt::format("{} of {} known answers, {:.3f} s", passed, end - begin, seconds),
                      "") +
            failures;
  }
  return text;
}

Json SelfTestJson(std::span<const AtollSelfTestResult> results) {
  Json tests = Json::array();
  for (const AtollSelfTestResult& result : results) {
    tests.push_back({{"device", result.device},
                     {"name", result.name},
                     {"passed", result.status == ATOLL_OK},
                     {"failure", result.failure},
                     {"ms", RoundedMs(result.seconds * 1e3)}});
  }
  return tests;
}

// What to end with, worst first; nothing if all is well.
std::optional<CommandError> Verdict(std::span<const AtollFinding> findings,
                                    std::span<const AtollSelfTestResult> results) {
  const AtollSelfTestResult* lost = nullptr;
  for (const AtollSelfTestResult& result : results) {
    if (result.status == ATOLL_OK) continue;
    if (result.status == ATOLL_INTERNAL) {
      return CommandError(ExitCode::kVerifyMismatch,
                          fmt::format("{} computes wrongly: {}; use another device", result.device,
                                      result.failure));
    }
    lost = &result;
  }
  if (lost != nullptr) {
    return CommandError(
        ExitCodeOf(lost->status, Activity::kRunning),
        fmt::format("{} failed: {}; plug it in again", lost->device, lost->failure));
  }
  for (const AtollFinding& finding : findings) {
    if (finding.level != ATOLL_FINDING_ERROR) continue;
    const std::string device = *finding.device == '\0' ? "" : fmt::format("{}: ", finding.device);
    return CommandError(ExitCode::kNoDevice,
                        fmt::format("{}{}; {}", device, finding.message, finding.fix));
  }
  return {};
}

// Valid until the next call.
std::span<const AtollFinding> Diagnose(const std::string& root) {
  const AtollFinding* list = nullptr;
  int32_t count = 0;
  ThrowIfError(AtollDiagnose(root.c_str(), &list, &count), Activity::kOpeningDevice,
               "cannot look at devices");
  return {list, static_cast<size_t>(count)};
}

// Whoever sits in front of it has read what is going to be done, and wants it.
bool IsWanted(const Mending& mending) {
  std::string text = fmt::format("{}: {}\n", Printable(mending.device), mending.effect);
  for (const MendingStep& step : mending.steps) text += fmt::format("  {}\n", step.shown);
  fmt::print(stderr, "{}Do this now? [y/N] ", text);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// What can be done about the findings; does it where that is wanted.
Json FixFindings(std::span<const AtollFinding> findings, const DoctorOptions& options) {
  Json fixes = Json::array();
  const bool may_ask = !options.json && isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
  const bool has_rights = !options.root.empty() || geteuid() == 0;
  for (const Mending& mending : MendingsOf(findings, options.root)) {
    Json fix = {{"device", mending.device},
                {"effect", mending.effect},
                {"commands", Json::array()},
                {"state", "offered"},
                {"failure", ""}};
    for (const MendingStep& step : mending.steps) fix["commands"].push_back(step.shown);
    if (!has_rights) {
      if (options.yes) fix["state"] = "failed";
      fix["failure"] = "only root may do that: sudo atoll doctor --fix";
    } else if (options.yes || (may_ask && IsWanted(mending))) {
      const std::optional<std::string> failure = Mend(mending);
      fix["state"] = failure ? "failed" : "done";
      fix["failure"] = failure.value_or("");
    }
    fixes.push_back(std::move(fix));
  }
  return fixes;
}

std::string FixesText(const Json& fixes) {
  std::string text;
  for (const Json& fix : fixes) {
    text += Paragraph(fix["state"], fix["device"], fix["effect"], "");
    for (const Json& command : fix["commands"]) {
      text += fmt::format("{:<8}   {}\n", "", Printable(command.get<std::string>()));
    }
    const std::string failure = fix["failure"];
    if (!failure.empty()) text += fmt::format("{:<8} {}\n", "", Printable(failure));
  }
  return text.empty() ? Paragraph("note", "", "there is nothing that --fix can do", "") : text;
}

void RunDoctor(const DoctorOptions& options) {
  if (options.yes && !options.fix) {
    Fail(ExitCode::kUsage, "--yes answers what --fix asks, and belongs to it");
  }
  std::span<const AtollFinding> findings = Diagnose(options.root);
  const Json fixes = options.fix ? FixFindings(findings, options) : Json();
  // What was done shows.
  if (std::ranges::any_of(fixes, [](const Json& fix) { return fix["state"] == "done"; })) {
    findings = Diagnose(options.root);
  }
  Json report = NewReport("doctor");
  report["device"] = options.device;
  report["healthy"] = true;
  report["findings"] = Json::array();
  for (const AtollFinding& finding : findings) {
    report["findings"].push_back(FindingJson(LevelName(finding.level), finding.code, finding.device,
                                             finding.message, finding.fix));
  }
  if (options.fix) report["fixes"] = fixes;
  report["cameras"] = LookAtCameras(options.root);
  report["self_test"] = nullptr;
  report["open_failure"] = nullptr;

  const AtollSelfTestResult* result_list = nullptr;
  int32_t result_count = 0;
  std::optional<CommandError> verdict;
  if (options.root.empty()) {
    const Progress progress("testing");
    const AtollStatus status =
        AtollDeviceSelfTest(options.device.c_str(), &result_list, &result_count);
    if (status != ATOLL_OK) {
      const std::string open_failure = AtollLastError();
      const ExitCode code = ExitCodeOf(status, Activity::kOpeningDevice);
      if (code == ExitCode::kUsage) ThrowIfError(status, Activity::kOpeningDevice, "");
      report["open_failure"] = open_failure;
      verdict.emplace(code,
                      fmt::format("cannot test the device '{}': {}", options.device, open_failure));
    }
  }
  const std::span results(result_list, static_cast<size_t>(result_count));
  if (options.root.empty() && !verdict) report["self_test"] = SelfTestJson(results);
  if (!verdict) verdict = Verdict(findings, results);
  report["healthy"] = !verdict.has_value();
  Print(
      options.json, [&] { return report; },
      [&] {
        std::string text;
        for (const char* list : {"findings", "cameras"}) {
          for (const Json& finding : report[list]) {
            text +=
                Paragraph(finding["level"], finding["device"], finding["message"], finding["fix"]);
          }
        }
        if (options.fix) text += FixesText(fixes);
        text += SelfTestText(results);
        const Json& failure = report["open_failure"];
        return failure.is_null() ? text : text + Paragraph("failed", "", failure, "");
      });
  if (verdict) throw CommandError(*verdict);
}

struct TopOptions {
  bool once = false;
  double interval_seconds = 1;
  bool json = false;
};

// What the counters of the last second come to.
struct Rates {
  double requests_per_second = 0;
  double duty_cycle = 0;           // measured: share of the time in which a request had the device
  double modelled_duty_cycle = 0;  // modelled: time of the device's programs per time
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
    Fail(ExitCode::kFailure, "{}; unset it to see devices", AtollLastError());
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

// Of the broker that `broker` means. Valid until the next call.
struct BrokerClients {
  bool is_there = false;
  std::string failure;  // "": none
  std::span<const AtollBrokerClient> clients;
};

BrokerClients LookAtBroker() {
  const AtollBrokerClient* list = nullptr;
  int32_t count = 0;
  const AtollStatus status = AtollListBrokerClients(nullptr, &list, &count);
  if (status == ATOLL_NOT_FOUND) return {};
  if (status != ATOLL_OK) return {.is_there = true, .failure = AtollLastError(), .clients = {}};
  return {.is_there = true, .failure = "", .clients = {list, static_cast<size_t>(count)}};
}

Json BrokerJson(const BrokerClients& broker) {
  if (!broker.is_there) return nullptr;
  Json clients = Json::array();
  for (const AtollBrokerClient& client : broker.clients) {
    clients.push_back({{"uid", client.user},
                       {"pid", client.process},
                       {"says", client.name},
                       {"weight", client.weight},
                       {"priority_max", client.priority_max},
                       {"requests", client.requests},
                       {"device_seconds", client.device_seconds},
                       {"share", client.share},
                       {"in_flight", client.in_flight},
                       {"waiting", client.waiting},
                       {"executables", client.executables},
                       {"bytes", client.bytes}});
  }
  return {{"failure", broker.failure}, {"clients", std::move(clients)}};
}

std::string BrokerText(const BrokerClients& broker, size_t width) {
  if (!broker.is_there) return "";
  std::string text = "\n";
  const auto add_line = [&](const std::string& line) {
    text += line.substr(0, width);
    text += '\n';
  };
  if (!broker.failure.empty()) {
    add_line("the broker: " + Printable(broker.failure));
    return text;
  }
  add_line(fmt::format("{:>7} {:>6} {:>9} {:>11} {:>6} {:>6} {:>9} {:>7} {:>9}  {}", "PID", "UID",
                       "REQUESTS", "DEVICE s", "SHARE", "WEIGHT", "IN FLIGHT", "WAITING",
                       "MEMORY MB", "CLIENT OF THE BROKER, AS IT SAYS"));
  for (const AtollBrokerClient& client : broker.clients) {
    add_line(fmt::format("{:>7} {:>6} {:>9} {:>11.3f} {:>5.1f}% {:>6} {:>9} {:>7} {:>9.1f}  '{}'",
                         client.process, client.user, client.requests, client.device_seconds,
                         client.share * 100, client.weight, client.in_flight, client.waiting,
                         static_cast<double>(client.bytes) / 1e6, client.name));
  }
  if (broker.clients.empty()) text += "the broker has no clients\n";
  return text;
}

Json ReportJson(std::span<const AtollActivity> activities, const BrokerClients& broker) {
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
  report["broker"] = BrokerJson(broker);
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
void Show(std::span<const AtollActivity> activities, const BrokerClients& broker, bool in_place) {
  const size_t width = LineWidth(in_place);
  const std::string text = ReportText(activities, width) + BrokerText(broker, width);
  if (!in_place) {
    PrintText(text);
    return;
  }
  PrintText("\x1b[H\x1b[J" + text +
            "\nOver the last second. Measured on the host: requests, DUTY (one has the device), "
            "times of requests.\nModelled: MODELLED (programs on the device), ARRAY (share of its "
            "peak). Ctrl-C ends.\n");
}

void RunTop(const TopOptions& options) {
  const std::atomic<bool>& stop = StopOnSignals();
  const bool in_place = !options.once && !options.json && isatty(STDOUT_FILENO) != 0;
  if (in_place) PrintText("\x1b[2J");
  for (;;) {
    const std::span<const AtollActivity> activities = Look();
    const BrokerClients broker = LookAtBroker();
    options.json ? PrintReport(ReportJson(activities, broker)) : Show(activities, broker, in_place);
    if (options.once || stop) return;
    poll(nullptr, 0, static_cast<int>(options.interval_seconds * 1e3));  // a signal ends it
    if (stop) return;
  }
}

}  // namespace

void AddDevicesCommand(CLI::App* app) {
  Subcommand<DevicesOptions> command(app, "devices", RunDevices);
  command.Flag("--json", command->json);
}

void AddDoctorCommand(CLI::App* app) {
  Subcommand<DoctorOptions> command(app, "doctor", RunDoctor);
  command.Add("--device", command->device);
  command.Add("--root", command->root)->check(CLI::ExistingDirectory);
  command.Flag("--fix", command->fix);
  command.Flag("--yes", command->yes);
  command.Flag("--json", command->json);
}

void AddTopCommand(CLI::App* app) {
  Subcommand<TopOptions> command(app, "top", RunTop);
  command.Flag("--once", command->once);
  command.Add("--interval", command->interval_seconds)->check(CLI::Range(0.1, 3600.0));
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
