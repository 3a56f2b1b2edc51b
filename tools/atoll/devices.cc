// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <span>

#include "atoll/delegate.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommands.h"

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
  if (options.json) {
    Json report = NewReport("devices");
    report["devices"] = std::move(devices);
    PrintReport(report);
  } else {
    text += "* --device auto takes this one; emu:FILE.json takes a profile of your own\n";
    PrintText(text);
  }
}

}  // namespace

void AddDevicesCommand(CLI::App* app) {
  auto options = std::make_shared<DevicesOptions>();
  CLI::App* command = app->add_subcommand("devices", "What --device can take on this computer.");
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "docs/isa.md, section 1, says what the profiles of emulated devices consist of.\n"
      "\n"
      "Examples:\n"
      "  atoll devices\n"
      "  atoll devices --json");
  command->callback([options] { RunDevices(*options); });
}

}  // namespace atollcmd
