// SPDX-License-Identifier: Apache-2.0
//
// atoll-device-plugin: see docs/kubernetes.md, and --help.
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "serve/kubernetes/plugin.h"

namespace atollserve {
namespace {

struct Options {
  std::string folder = DevicePluginOptions().folder;
  std::vector<std::string> brokers;
  std::vector<std::string> exclusive;
  std::string resource = DevicePluginOptions().resource;
  int shares = DevicePluginOptions().shares;
  std::string prefer = "spread";
};

// A name that Kubernetes takes: letters and digits with dashes between.
std::string IdOf(std::string name) {
  constexpr size_t kMost = 57;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return isalnum(static_cast<unsigned char>(c)) == 0; },
      '-');
  const size_t first = std::min(name.find_first_not_of('-'), name.size());
  return name.substr(first, kMost);
}

// Whether the broker answers, and its device is there.
bool Answers(const std::string& socket) {
  const std::string name = "broker:" + socket;
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  options.device = name.c_str();
  options.on_device_loss = "fail";
  AtollDelegate* delegate = nullptr;
  if (AtollDelegateCreate(&options, &delegate) != ATOLL_OK) return false;
  AtollDelegateDelete(delegate);
  return true;
}

std::vector<OfferedDevice> LookAtBrokers(const std::vector<std::string>& sockets) {
  std::vector<OfferedDevice> devices;
  for (size_t i = 0; i < sockets.size(); ++i) {
    OfferedDevice device;
    device.id = sockets.size() == 1 ? "broker" : "broker" + std::to_string(i);
    device.socket = sockets[i];
    struct stat status = {};
    if (stat(sockets[i].c_str(), &status) == 0) device.broker_uid = status.st_uid;
    device.is_healthy = Answers(sockets[i]);
    devices.push_back(std::move(device));
  }
  return devices;
}

// What a container needs of /dev. A Coral on USB has another file there after its firmware was
// loaded, so all of the bus goes in.
std::vector<DeviceNode> NodesOf(const std::string& name) {
  constexpr std::string_view kPci = "pci:";
  if (name.starts_with("/dev/")) return {{name}};
  if (!name.starts_with(kPci)) return {{"/dev/bus/usb"}};
  std::error_code error;
  const auto group = std::filesystem::read_symlink(
      "/sys/bus/pci/devices/" + name.substr(kPci.size()) + "/iommu_group", error);
  if (error) return {{"/dev/vfio"}};
  return {{"/dev/vfio/vfio"}, {"/dev/vfio/" + group.filename().string()}};
}

std::vector<OfferedDevice> LookAtDevices(const std::vector<std::string>& names) {
  const AtollDeviceInfo* there = nullptr;
  int32_t count = 0;
  if (AtollListDevices(&there, &count) != ATOLL_OK) count = 0;
  std::vector<OfferedDevice> devices;
  for (const std::string& name : names) {
    OfferedDevice device;
    device.id = IdOf(name);
    device.name = name;
    device.nodes = NodesOf(name);
    // One that a container uses cannot be opened now, and is well.
    device.is_healthy = std::any_of(there, there + count,
                                    [&](const AtollDeviceInfo& info) { return name == info.name; });
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<DevicePlugin*> signalled;
void StopAll(int) {
  for (DevicePlugin* plugin : signalled) plugin->Stop();
}

int Run(const Options& options) {
  std::vector<DevicePluginOptions> offers;
  const auto offer = [&](const std::string& resource, const char* socket,
                         std::function<std::vector<OfferedDevice>()> look) {
    DevicePluginOptions one;
    one.folder = options.folder;
    one.resource = resource;
    one.socket_name = socket;
    one.shares = options.shares;
    one.preference = options.prefer == "pack" ? Preference::kPack : Preference::kSpread;
    one.look = std::move(look);
    one.say = [](const std::string& line) {
      std::printf("atoll-device-plugin %s\n", line.c_str());
      std::fflush(stdout);
    };
    offers.push_back(std::move(one));
  };
  if (!options.brokers.empty()) {
    offer(options.resource, "atoll.sock", [&] { return LookAtBrokers(options.brokers); });
  }
  if (!options.exclusive.empty()) {
    offer(options.resource + "-exclusive", "atoll-exclusive.sock",
          [&] { return LookAtDevices(options.exclusive); });
  }
  std::vector<std::unique_ptr<DevicePlugin>> plugins;
  for (DevicePluginOptions& one : offers) {
    auto plugin = DevicePlugin::Create(std::move(one));
    if (!plugin.ok()) {
      std::fprintf(stderr, "atoll-device-plugin: %s\n", plugin.status().message().c_str());
      return 2;
    }
    signalled.push_back(plugin->get());
    plugins.push_back(*std::move(plugin));
  }
  struct sigaction action = {};
  action.sa_handler = StopAll;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::vector<atollrt::Status> ended(plugins.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < plugins.size(); ++i) {
      threads.emplace_back([&, i] {
        ended[i] = plugins[i]->Run();
        StopAll(0);  // one without the other is of no use
      });
    }
  }
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  for (const atollrt::Status& status : ended) {
    if (status.ok()) continue;
    std::fprintf(stderr, "atoll-device-plugin: %s\n", status.message().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace atollserve

int main(int argc, char** argv) {
  atollserve::Options options;
  CLI::App app(
      "Offers accelerators to Kubernetes: places at a broker, which containers share, and "
      "whole devices.");
  app.set_version_flag("--version", AtollVersion());
  app.add_option("--broker", options.brokers,
                 "the socket of a broker on this node, whose device containers share; repeatable "
                 "(/run/atoll/broker.sock unless --exclusive is given)");
  app.add_option("--exclusive", options.exclusive,
                 "a device of which a container has all, as 'atoll devices' names it: usb:2-3, "
                 "pci:0000:01:00.0, /dev/apex_0; repeatable");
  app.add_option("--shares", options.shares, "places at a broker")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--resource", options.resource,
                 "what pods ask for; whole devices have this name with -exclusive behind it")
      ->capture_default_str();
  app.add_option("--prefer", options.prefer,
                 "of several brokers, the one with the fewest places given, or the most")
      ->check(CLI::IsMember({"spread", "pack"}))
      ->capture_default_str();
  app.add_option("--plugin-dir", options.folder, "the kubelet's folder")->capture_default_str();
  app.footer(
      "\nExamples:\n"
      "  atoll-device-plugin --shares 4\n"
      "  atoll-device-plugin --exclusive usb:2-3 --exclusive /dev/apex_0\n"
      "docs/kubernetes.md has the manifests.");
  CLI11_PARSE(app, argc, argv);
  if (options.brokers.empty() && options.exclusive.empty()) {
    options.brokers = {"/run/atoll/broker.sock"};
  }
  for (const std::string& socket : options.brokers) {
    if (socket.starts_with('/') && socket.size() > 1) continue;
    std::fprintf(stderr, "atoll-device-plugin: --broker '%s' must begin with '/'\n",
                 socket.c_str());
    return 2;
  }
  return atollserve::Run(options);
}
