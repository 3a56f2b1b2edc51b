// SPDX-License-Identifier: Apache-2.0
#include "atoll/broker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

struct BrokerOptions {
  std::string device = "auto";
  std::string socket;
  std::vector<std::string> shares;
  std::string on_device_loss = "fallback";
  int threads = 0;
};

AtollBroker* signalled = nullptr;
void StopBroker(int) { AtollBrokerStop(signalled); }

const char* TextOrNull(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

void RunBroker(const BrokerOptions& options) {
  const std::string shares = fmt::format("{}", fmt::join(options.shares, ","));
  AtollDelegateOptions device = ATOLL_DELEGATE_OPTIONS_INIT;
  device.device = options.device.c_str();
  device.num_threads = options.threads;
  device.on_device_loss = options.on_device_loss.c_str();
  AtollBrokerOptions broker_options = ATOLL_BROKER_OPTIONS_INIT;
  broker_options.socket_path = TextOrNull(options.socket);
  broker_options.shares = options.shares.empty() ? nullptr : shares.c_str();
  AtollBroker* created = nullptr;
  ThrowIfError(AtollBrokerCreate(&device, &broker_options, &created), Activity::kOpeningDevice,
               "no broker");
  const std::unique_ptr<AtollBroker, decltype(&AtollBrokerDelete)> broker(created,
                                                                          AtollBrokerDelete);
  signalled = created;
  struct sigaction action = {};
  action.sa_handler = StopBroker;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  fmt::print("{} at {}; Ctrl-C stops it\n", AtollBrokerGetDeviceDescription(created),
             AtollBrokerGetPath(created));
  std::fflush(stdout);
  ThrowIfError(AtollBrokerRun(created), Activity::kOpeningDevice, "the broker ended");
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
}

}  // namespace

void AddBrokerCommand(CLI::App* app) {
  Subcommand<BrokerOptions> command(app, "broker", RunBroker);
  command.Add("--device", command->device);
  command.Add("--socket", command->socket);
  command.AddRepeatable("--share", command->shares);
  command.Add("--on-device-loss", command->on_device_loss);
  command.Add("--threads", command->threads)->check(CLI::Range(0, 256));
}

}  // namespace atollcmd
