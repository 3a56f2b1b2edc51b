// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/mending.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tools/atoll/pcie_rules_text.h"
#include "tools/atoll/session.h"
#include "tools/atoll/usb_rules_text.h"

namespace atollcmd {
namespace {

constexpr std::string_view kPciPrefix = "pci:";
constexpr const char* kVfioDriver = "vfio-pci";

MendingStep WriteStep(const std::string& root, const std::string& file, const std::string& text) {
  return {fmt::format("echo {} > {}", text, file), root + file, text + "\n", {}};
}

MendingStep RunStep(std::vector<std::string> words) {
  return {fmt::format("{}", fmt::join(words, " ")), "", "", std::move(words)};
}

bool IsInPath(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
    rest = colon == rest.npos ? "" : rest.substr(colon + 1);
  }
  return false;
}

// Of the function at `address`, whatever it is bound to.
Mending BindToVfio(const std::string& address, const std::string& root) {
  Mending mending = {std::string(kPciPrefix) + address, "", {}};
  const std::string folder = "/sys/bus/pci/devices/" + address;
  std::error_code ignored;
  const bool is_bound = std::filesystem::exists(root + folder + "/driver", ignored);
  if (root.empty() && IsInPath("driverctl")) {
    mending.effect = fmt::format("binds {} to vfio-pci, now and after each start", address);
    mending.steps.push_back(RunStep({"driverctl", "set-override", address, kVfioDriver}));
    return mending;
  }
  mending.effect = fmt::format(
      "binds {} to vfio-pci until the computer is switched off; driverctl, where it is installed, "
      "keeps that",
      address);
  if (root.empty()) {
    mending.steps.push_back(RunStep({"modprobe", kVfioDriver}));
    mending.steps.back().optional = true;  // it may be part of the kernel
  }
  mending.steps.push_back(WriteStep(root, folder + "/driver_override", kVfioDriver));
  if (is_bound) mending.steps.push_back(WriteStep(root, folder + "/driver/unbind", address));
  mending.steps.push_back(WriteStep(root, "/sys/bus/pci/drivers_probe", address));
  return mending;
}

Mending InstallRules(const std::string& device, const std::string& root) {
  const bool is_usb = IsDevice(device, atollrt::DeviceName::Kind::kUsb);
  const std::string name = is_usb ? "60-atoll.rules" : "61-atoll-pcie.rules";
  const std::string source = is_usb ? "driver/usb/udev/" : "driver/vfio/udev/";
  const std::string file = "/etc/udev/rules.d/" + name;
  Mending mending = {
      device, "lets who sits at this computer, and the group plugdev, open such devices", {}};
  mending.steps.push_back({fmt::format("cp {}{} {}", source, name, file),
                           root + file,
                           std::string(is_usb ? kUsbRulesText : kPcieRulesText),
                           {}});
  if (root.empty()) {
    mending.steps.push_back(RunStep({"udevadm", "control", "--reload"}));
    std::vector<std::string> trigger = {"udevadm", "trigger"};
    for (const char* subsystem : {"usb", "vfio", "vfio-dev", "misc", "apex"}) {
      if ((std::string_view(subsystem) == "usb") == is_usb) {
        trigger.push_back(std::string("--subsystem-match=") + subsystem);
      }
    }
    mending.steps.push_back(RunStep(std::move(trigger)));
  }
  return mending;
}

std::string RunProgram(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error != 0) return std::strerror(error);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::strerror(errno);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status)) : "it was killed";
}

std::string WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  errno = 0;
  file << text;
  file.close();
  return file.fail() ? std::strerror(errno != 0 ? errno : EIO) : "";
}

}  // namespace

std::vector<Mending> MendingsOf(std::span<const AtollFinding> findings, const std::string& root) {
  std::vector<Mending> mendings;
  const auto has_rules_for = [&](bool usb) {
    return std::ranges::any_of(mendings, [&](const Mending& one) {
      return one.steps.front().file.ends_with(".rules") &&
             IsDevice(one.device, atollrt::DeviceName::Kind::kUsb) == usb;
    });
  };
  for (const AtollFinding& finding : findings) {
    const std::string_view code = finding.code, device = finding.device, fix = finding.fix;
    // A Coral whose kernel modules are broken is as well off with VFIO, if there is an IOMMU.
    if ((code == "other_driver" || code == "no_driver" ||
         (code == "gasket_broken" && fix.find("--fix") != fix.npos)) &&
        device.starts_with(kPciPrefix)) {
      mendings.push_back(BindToVfio(std::string(device.substr(kPciPrefix.size())), root));
    } else if (code == "no_permission" && fix.find(".rules") != fix.npos &&
               !has_rules_for(IsDevice(device, atollrt::DeviceName::Kind::kUsb))) {
      mendings.push_back(InstallRules(std::string(device), root));
    }
  }
  return mendings;
}

std::optional<std::string> Mend(const Mending& mending) {
  for (const MendingStep& step : mending.steps) {
    const std::string failure =
        step.file.empty() ? RunProgram(step.words) : WriteFile(step.file, step.text);
    if (!failure.empty() && !step.optional) return fmt::format("'{}': {}", step.shown, failure);
  }
  return {};
}

}  // namespace atollcmd
