// SPDX-License-Identifier: Apache-2.0
#include "atoll/broker.h"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tools/atoll/broker_shares.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

struct BrokerOptions {
  std::string device = "auto";
  std::string socket;
  std::vector<std::string> shares;
  std::string config;
  std::string on_device_loss = "fallback";
  std::string performance = "max";
  std::string firmware;
  int threads = 0;
  bool reset = false;
};

AtollBroker* signalled = nullptr;
void StopBroker(int) { AtollBrokerStop(signalled); }

const char* TextOrNull(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

// Those of the command line first.
void SetShares(const BrokerOptions& options, AtollBroker* broker) {
  std::vector<AtollBrokerShare> shares;
  for (const std::string& text : options.shares) shares.push_back(ParseBrokerShare(text));
  if (!options.config.empty()) {
    for (const AtollBrokerShare& share : ReadBrokerShares(options.config)) shares.push_back(share);
  }
  std::vector<const AtollBrokerShare*> pointers;
  for (const AtollBrokerShare& share : shares) pointers.push_back(&share);
  ThrowIfError(AtollBrokerSetShares(broker, pointers.data(), static_cast<int32_t>(pointers.size())),
               Activity::kOpeningDevice, "shares");
}

// Reads the file with the shares again on SIGHUP, which threads that begin while this lives do not
// take. Without a file SIGHUP ends the broker, as it does other programs.
class Reloader {
 public:
  explicit Reloader(const BrokerOptions& options) : options_(options) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGHUP);
    if (!options_.config.empty()) pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  ~Reloader() {
    if (thread_.joinable()) {
      stop_ = true;
      pthread_kill(thread_.native_handle(), SIGHUP);
      thread_.join();
    }
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  }
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;

  void Start(AtollBroker* broker) {
    if (options_.config.empty()) return;
    thread_ = std::thread([this, broker] {
      for (int number = 0; sigwait(&signals_, &number) == 0 && !stop_;) {
        try {
          SetShares(options_, broker);
          fmt::print(stderr, "atoll: note: '{}' is read again\n", options_.config);
        } catch (const std::exception& error) {
          fmt::print(stderr, "atoll: warning: shares stay as they were: {}\n", error.what());
        }
      }
    });
  }

 private:
  const BrokerOptions& options_;
  sigset_t signals_ = {};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void RunBroker(const BrokerOptions& options) {
  if (options.reset) {
    ThrowIfError(AtollResetBrokerDevice(TextOrNull(options.socket)), Activity::kOpeningDevice,
                 "no reset");
    return;
  }
  AtollDelegateOptions device = ATOLL_DELEGATE_OPTIONS_INIT;
  device.device = options.device.c_str();
  device.num_threads = options.threads;
  device.on_device_loss = options.on_device_loss.c_str();
  device.performance = options.performance.c_str();
  device.firmware = TextOrNull(options.firmware);
  AtollBrokerOptions broker_options = ATOLL_BROKER_OPTIONS_INIT;
  broker_options.socket_path = TextOrNull(options.socket);
  AtollBroker* created = nullptr;
  std::unique_ptr<AtollBroker, decltype(&AtollBrokerDelete)> broker(nullptr, AtollBrokerDelete);
  Reloader reloader(options);
  ThrowIfError(AtollBrokerCreate(&device, &broker_options, &created), Activity::kOpeningDevice,
               "no broker");
  broker.reset(created);
  SetShares(options, created);
  signalled = created;
  struct sigaction action = {};
  action.sa_handler = StopBroker;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  fmt::print("{} at {}; Ctrl-C stops it\n", AtollBrokerGetDeviceDescription(created),
             AtollBrokerGetPath(created));
  std::fflush(stdout);
  reloader.Start(created);
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
  command.Add("--config", command->config);
  command.Add("--on-device-loss", command->on_device_loss);
  command.Add("--performance", command->performance)
      ->check(CLI::IsMember({"low", "medium", "high", "max"}));
  command.Add("--firmware", command->firmware)->check(CLI::ExistingFile);
  command.Add("--threads", command->threads)->check(CLI::Range(0, 256));
  command.Flag("--reset", command->reset);
}

}  // namespace atollcmd
