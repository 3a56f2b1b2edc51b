// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/camera.h"
#include "atoll/delegate.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/progress.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

struct DoctorOptions {
  std::string device = "auto";
  std::string root;
  bool json = false;
};

// What one device, or the CPU, made of the self-test.
struct DeviceTest {
  std::string device;
  int passed = 0;
  std::vector<const AtollSelfTestResult*> failed;
  double seconds = 0;
};

// What there is to say about cameras. None is an error: most commands do without.
struct CameraFinding {
  AtollFindingLevel level;
  const char* code;
  std::string device;
  std::string message;
  std::string fix;
};

std::vector<CameraFinding> LookAtCameras(const std::string& root) {
  std::vector<CameraFinding> findings;
  for (const atollrt::CameraDevice& camera : atollrt::ListCameras(root)) {
    CameraFinding finding = {ATOLL_FINDING_FINE, "camera", camera.path,
                             fmt::format("a camera, {}", camera.name), ""};
    if (!camera.has_node) {
      finding.level = ATOLL_FINDING_WARNING;
      finding.code = "camera_no_node";
      finding.message += ", which the kernel has, but here is no node of it";
      finding.fix = fmt::format("give the container --device {}", camera.path);
    } else if (!camera.permitted) {
      finding.level = ATOLL_FINDING_WARNING;
      finding.code = "camera_no_permission";
      finding.message +=
          fmt::format(", which this user may not open; the group '{}' may", camera.group);
      finding.fix = fmt::format("sudo usermod -aG {} $USER, then log in again", camera.group);
    }
    findings.push_back(std::move(finding));
  }
  if (findings.empty()) {
    findings.push_back({ATOLL_FINDING_NOTE, "no_camera", "", "the kernel shows no camera",
                        "plug one in; 'atoll camera' takes files, pipes and network cameras, too"});
  }
  return findings;
}

const char* LevelName(AtollFindingLevel level) {
  switch (level) {
    case ATOLL_FINDING_FINE:
      return "fine";
    case ATOLL_FINDING_NOTE:
      return "note";
    case ATOLL_FINDING_WARNING:
      return "warning";
    case ATOLL_FINDING_ERROR:
      break;
  }
  return "error";
}

// Two lines: what is the case, and what to do.
std::string Paragraph(const char* level, const std::string& device, const std::string& message,
                      const std::string& fix) {
  std::string text = fmt::format("{:<8} {}{}{}\n", level, Printable(device),
                                 device.empty() ? "" : ": ", Printable(message));
  if (!fix.empty()) text += fmt::format("{:<8} {}\n", "", Printable(fix));
  return text;
}

std::vector<DeviceTest> ByDevice(std::span<const AtollSelfTestResult> results) {
  std::vector<DeviceTest> tests;
  for (const AtollSelfTestResult& result : results) {
    if (tests.empty() || tests.back().device != result.device) {
      tests.emplace_back().device = result.device;
    }
    DeviceTest& test = tests.back();
    test.seconds += result.seconds;
    if (result.status == ATOLL_OK) {
      ++test.passed;
    } else {
      test.failed.push_back(&result);
    }
  }
  return tests;
}

std::string Text(std::span<const AtollFinding> findings, const std::vector<CameraFinding>& cameras,
                 std::span<const AtollSelfTestResult> results, const std::string& open_failure) {
  std::string text;
  for (const AtollFinding& finding : findings) {
    text += Paragraph(LevelName(finding.level), finding.device, finding.message, finding.fix);
  }
  for (const CameraFinding& camera : cameras) {
    text += Paragraph(LevelName(camera.level), camera.device, camera.message, camera.fix);
  }
  for (const DeviceTest& test : ByDevice(results)) {
    text += Paragraph(test.failed.empty() ? "passed" : "failed", test.device,
                      fmt::format("{} of {} known answers, {:.3f} s", test.passed,
                                  test.passed + static_cast<int>(test.failed.size()), test.seconds),
                      "");
    for (const AtollSelfTestResult* result : test.failed) {
      text += fmt::format("{:<8} {}\n", "", Printable(result->failure));
    }
  }
  if (!open_failure.empty()) text += Paragraph("failed", "", open_failure, "");
  return text;
}

Json ReportJson(const DoctorOptions& options, std::span<const AtollFinding> findings,
                const std::vector<CameraFinding>& cameras,
                std::span<const AtollSelfTestResult> results, const std::string& open_failure,
                bool healthy) {
  Json report = NewReport("doctor");
  report["device"] = options.device;
  report["healthy"] = healthy;
  report["findings"] = Json::array();
  for (const AtollFinding& finding : findings) {
    report["findings"].push_back({{"level", LevelName(finding.level)},
                                  {"code", finding.code},
                                  {"device", finding.device},
                                  {"message", finding.message},
                                  {"fix", finding.fix}});
  }
  report["cameras"] = Json::array();
  for (const CameraFinding& camera : cameras) {
    report["cameras"].push_back({{"level", LevelName(camera.level)},
                                 {"code", camera.code},
                                 {"device", camera.device},
                                 {"message", camera.message},
                                 {"fix", camera.fix}});
  }
  report["self_test"] = nullptr;
  if (options.root.empty() && open_failure.empty()) {
    report["self_test"] = Json::array();
    for (const AtollSelfTestResult& result : results) {
      report["self_test"].push_back({{"device", result.device},
                                     {"name", result.name},
                                     {"passed", result.status == ATOLL_OK},
                                     {"failure", result.failure},
                                     {"ms", RoundedMs(result.seconds * 1e3)}});
    }
  }
  report["open_failure"] = open_failure.empty() ? Json(nullptr) : Json(open_failure);
  return report;
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

void RunDoctor(const DoctorOptions& options) {
  const AtollFinding* finding_list = nullptr;
  int32_t finding_count = 0;
  ThrowIfError(AtollDiagnose(options.root.c_str(), &finding_list, &finding_count),
               Activity::kOpeningDevice, "cannot look at devices");
  const std::span findings(finding_list, static_cast<size_t>(finding_count));
  const std::vector<CameraFinding> cameras = LookAtCameras(options.root);

  const AtollSelfTestResult* result_list = nullptr;
  int32_t result_count = 0;
  std::string open_failure;
  std::optional<CommandError> verdict;
  if (options.root.empty()) {
    const Progress progress("testing");
    const AtollStatus status =
        AtollDeviceSelfTest(options.device.c_str(), &result_list, &result_count);
    if (status != ATOLL_OK) {
      open_failure = AtollLastError();
      const ExitCode code = ExitCodeOf(status, Activity::kOpeningDevice);
      if (code == ExitCode::kUsage) {
        ThrowIfError(status, Activity::kOpeningDevice, "");
      }
      verdict.emplace(code,
                      fmt::format("cannot test the device '{}': {}", options.device, open_failure));
    }
  }
  const std::span results(result_list, static_cast<size_t>(result_count));
  if (!verdict) verdict = Verdict(findings, results);
  if (options.json) {
    PrintReport(
        ReportJson(options, findings, cameras, results, open_failure, !verdict.has_value()));
  } else {
    PrintText(Text(findings, cameras, results, open_failure));
  }
  if (verdict) throw CommandError(*verdict);
}

}  // namespace

void AddDoctorCommand(CLI::App* app) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app->add_subcommand(
      "doctor", "Why a device cannot be used and what to do, and whether it computes right.");
  command
      ->add_option("--device", options->device,
                   "what to test, as in other subcommands; auto: the first real device, else the "
                   "emulator")
      ->capture_default_str();
  command
      ->add_option("--root", options->root,
                   "look at a copy of another computer's /sys, /dev and /etc in this folder, "
                   "and test nothing")
      ->check(CLI::ExistingDirectory);
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "Looks at what is plugged in: no device, no permission, another process that has it,\n"
      "missing firmware, a slow link, little power, a container without /dev/bus/usb, a Coral on\n"
      "PCIe; and at cameras, of which nothing is an error. Then runs a self-test with known\n"
      "answers: the kernels of this CPU, every instruction on an emulator with the kernels of "
      "each\n"
      "level that this CPU has, and on the device if it is real.\n"
      "Exit code 0: all is well; 3: a device is there and cannot be used, or --device is not "
      "there;\n"
      "5: it was lost during the test; 6: something computes wrongly. docs/doctor.md lists the\n"
      "findings.\n"
      "\n"
      "Examples:\n"
      "  atoll doctor\n"
      "  atoll doctor --device usb\n"
      "  atoll doctor --json");
  command->callback([options] { RunDoctor(*options); });
}

}  // namespace atollcmd
