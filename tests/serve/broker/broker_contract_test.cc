// SPDX-License-Identifier: Apache-2.0
//
// A device behind a broker holds to what the device itself does, and so do two brokers' as one.
#include <gtest/gtest.h>

#include "tests/driver/device/device_contract.h"
#include "tests/serve/broker/broker_testing.h"
#include "tests/support/emulated_device.h"
#include "tests/support/tampered_pcie.h"

namespace atollrt {
namespace {

std::unique_ptr<Device> OnUsb() {
  return EmulatedDevice{.memory_bytes = kDeviceContractMemory}.Open();
}

class BrokerDeviceContract : public testing::TestWithParam<DeviceClause> {};

TEST_P(BrokerDeviceContract, HoldsOfOneOnUsb) {
  const Folder folder;
  const Serving broker(folder.socket(), {}, OnUsb());
  GetParam().check([&] { return OpenAt(folder.socket()); });
}

TEST_P(BrokerDeviceContract, HoldsOfOneOnPcie) {
  const Folder folder;
  const Serving broker(folder.socket(), {},
                       RingDevice{.memory_bytes = kDeviceContractMemory}.Open());
  GetParam().check([&] { return OpenAt(folder.socket()); });
}

TEST_P(BrokerDeviceContract, HoldsOfSeveral) {
  const Folder folder;
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < 2; ++i) devices.push_back(OnUsb());
  const Serving broker(folder.socket(), {}, *Device::Join(std::move(devices)));
  GetParam().check([&] { return OpenAt(folder.socket()); });
}

TEST_P(BrokerDeviceContract, HoldsOfTwoBrokersAsOne) {
  const Folder folders[2];
  const Serving first(folders[0].socket(), {}, OnUsb());
  const Serving second(folders[1].socket(), {}, OnUsb());
  GetParam().check([&] {
    std::vector<std::unique_ptr<Device>> devices;
    for (const Folder& folder : folders) devices.push_back(OpenAt(folder.socket()));
    return *Device::Join(std::move(devices));
  });
}

INSTANTIATE_TEST_SUITE_P(All, BrokerDeviceContract, testing::ValuesIn(kDeviceContract),
                         NameOfDeviceClause);

}  // namespace
}  // namespace atollrt
