// SPDX-License-Identifier: Apache-2.0
//
// The device of another computer holds to what the device itself does, and so do those of two as
// one. The servers are in this process, and all goes over the loopback.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serve/grpc/grpc_server.h"
#include "serve/inference/inference_server.h"
#include "serve/network/network_chip.h"
#include "tests/driver/device/device_contract.h"

namespace atollserve {
namespace {

using atollrt::Clock;
using atollrt::Device;
using atollrt::DeviceClause;

// An `atoll serve --share-device` with a device of the contract's size.
class Sharing {
 public:
  explicit Sharing(const std::string& device) {
    InferenceServerOptions options;
    options.device = device;
    options.threads = 1;
    options.share_device = true;
    auto inference = InferenceServer::Create(std::move(options));
    EXPECT_TRUE(inference.ok()) << inference.status().message();
    inference_ = *std::move(inference);
    GrpcServerOptions grpc;
    grpc.listen = "127.0.0.1:0";
    auto server = GrpcServer::Start(std::move(grpc), inference_.get());
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = *std::move(server);
  }

  std::unique_ptr<Device> Open() const {
    const std::string address = "127.0.0.1:" + std::to_string(server_->port());
    auto chip = NetworkChip::Open(address, {.name = "grpc://" + address},
                                  Clock::now() + std::chrono::minutes(1));
    EXPECT_TRUE(chip.ok()) << chip.status().message();
    if (!chip.ok()) return nullptr;
    return std::make_unique<Device>(*std::move(chip), atollrt::ChipKeeper::Options());
  }

 private:
  std::unique_ptr<InferenceServer> inference_;
  std::unique_ptr<GrpcServer> server_;
};

class NetworkDeviceContract : public testing::TestWithParam<DeviceClause> {};

TEST_P(NetworkDeviceContract, Holds) {
  const Sharing host("emu:1mib");
  GetParam().check([&] { return host.Open(); });
}

TEST_P(NetworkDeviceContract, HoldsOfTwoComputersAsOne) {
  const Sharing hosts[] = {Sharing("emu:1mib"), Sharing("emu:1mib")};
  GetParam().check([&] {
    std::vector<std::unique_ptr<Device>> devices;
    for (const Sharing& host : hosts) devices.push_back(host.Open());
    return *Device::Join(std::move(devices));
  });
}

INSTANTIATE_TEST_SUITE_P(All, NetworkDeviceContract, testing::ValuesIn(atollrt::kDeviceContract),
                         atollrt::NameOfDeviceClause);

}  // namespace
}  // namespace atollserve
