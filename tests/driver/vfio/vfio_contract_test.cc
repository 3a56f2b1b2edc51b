// SPDX-License-Identifier: Apache-2.0
//
// VfioFunction, held to what every PcieFunction is: over a kernel in memory, with the emulated
// endpoint in its slot, which works in a thread of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "driver/emulator/pcie_endpoint.h"
#include "driver/pcie/device_memory.h"
#include "driver/profiles/device_profile.h"
#include "driver/vfio/vfio_bus.h"
#include "tests/driver/pcie/pcie_function_contract.h"
#include "tests/support/fake_vfio.h"

namespace atollrt {
namespace {

class EndpointOnVfio final : public FakeVfio, private PcieUpstream {
 public:
  EndpointOnVfio() {
    function.bar_bytes = {kRegisterBarBytes, 0, 0, 0, 0, 0};
    function.vectors = kRingVectors;
    function.may_map = false;  // each access is one of the device
    CoreOptions options{.profile = *FindDeviceProfile("pcie")};
    options.profile.memory_bytes = 1 << 20;
    auto endpoint = PcieEndpoint::Create(options, this);
    EXPECT_TRUE(endpoint.ok());
    endpoint_ = *std::move(endpoint);
    worker_ = std::thread([this] { Work(); });
  }
  ~EndpointOnVfio() override {
    stopping_ = true;
    worker_.join();
  }

 private:
  void Work() {
    while (!stopping_) {
      bool has_worked = false;
      {
        const std::lock_guard lock(mutex_);
        has_worked = endpoint_->Step();
      }
      // Others get their turn, too.
      std::this_thread::sleep_for(std::chrono::microseconds(has_worked ? 1 : 200));
    }
  }
  bool Access(const std::string&, uint32_t bar, uint64_t offset, std::span<uint8_t> bytes,
              bool store) override {
    if (bar != kRegisterBar || bytes.size() % 4 != 0) return false;
    for (size_t i = 0; i < bytes.size(); i += 4) {
      uint32_t word = 0;
      if (store) {
        std::memcpy(&word, bytes.data() + i, sizeof(word));
        endpoint_->Write32(offset + i, word);
      } else {
        word = endpoint_->Read32(offset + i);
        std::memcpy(bytes.data() + i, &word, sizeof(word));
      }
    }
    return true;
  }
  void ResetDevice(const std::string&) override { endpoint_->Reset(); }
  bool Copy(uint64_t address, std::span<uint8_t> device, char right, uint64_t* fault) {
    while (!device.empty()) {
      const std::span<uint8_t> host = At(address, right);
      const size_t bytes = std::min(host.size(), device.size());
      if (bytes == 0) {
        *fault = address;
        return false;
      }
      if (right == 'r') {
        std::memcpy(device.data(), host.data(), bytes);
      } else {
        StoreAsDevice(device.first(bytes), host.data());
      }
      address += bytes;
      device = device.subspan(bytes);
    }
    return true;
  }
  bool ReadMemory(uint64_t address, std::span<uint8_t> destination, uint64_t* fault) override {
    return Copy(address, destination, 'r', fault);
  }
  bool WriteMemory(uint64_t address, std::span<const uint8_t> source, uint64_t* fault) override {
    return Copy(address, {const_cast<uint8_t*>(source.data()), source.size()}, 'w', fault);
  }
  void RaiseInterrupt(uint32_t vector) override { Signal("", vector); }

  std::unique_ptr<PcieEndpoint> endpoint_;
  std::atomic<bool> stopping_{false};
  std::thread worker_;
};

class VfioContract : public testing::TestWithParam<PcieFunctionClause> {};
TEST_P(VfioContract, HoldsByTheNodeOfTheGroup) {
  FakeRoot root;
  root.Plug({});
  EndpointOnVfio kernel;
  VfioBus bus({.root = root.path(), .calls = &kernel});
  GetParam().check({.open = [&] {
    auto function = bus.Open({.id = kAtollPcieId, .address = "0000:01:00.0"});
    EXPECT_TRUE(function.ok()) << function.status().message();
    return *std::move(function);
  }});
}
TEST_P(VfioContract, HoldsByTheNodeOfTheFunction) {
  FakeRoot root;
  root.Plug({});
  root.Write("/sys/bus/pci/devices/0000:01:00.0/vfio-dev/vfio0/dev", "");
  EndpointOnVfio kernel;
  kernel.has_groups = false;
  VfioBus bus({.root = root.path(), .calls = &kernel});
  GetParam().check({.open = [&] {
    auto function = bus.Open({.id = kAtollPcieId, .address = "0000:01:00.0"});
    EXPECT_TRUE(function.ok()) << function.status().message();
    return *std::move(function);
  }});
}
INSTANTIATE_TEST_SUITE_P(All, VfioContract, testing::ValuesIn(kPcieFunctionContract), NameOfClause);

}  // namespace
}  // namespace atollrt
