// SPDX-License-Identifier: Apache-2.0
//
// Every Device of emulated chips, held to the same clauses. Those behind a broker are in
// serve/broker/broker_contract_test.cc.
#include "tests/driver/device/device_contract.h"

#include <gtest/gtest.h>

#include "tests/support/emulated_device.h"
#include "tests/support/tampered_pcie.h"

namespace atollrt {
namespace {

class UsbDeviceContract : public testing::TestWithParam<DeviceClause> {};
TEST_P(UsbDeviceContract, Holds) {
  GetParam().check([] { return EmulatedDevice{.memory_bytes = kDeviceContractMemory}.Open(); });
}
INSTANTIATE_TEST_SUITE_P(All, UsbDeviceContract, testing::ValuesIn(kDeviceContract),
                         NameOfDeviceClause);

class PcieDeviceContract : public testing::TestWithParam<DeviceClause> {};
TEST_P(PcieDeviceContract, Holds) {
  GetParam().check([] { return RingDevice{.memory_bytes = kDeviceContractMemory}.Open(); });
}
INSTANTIATE_TEST_SUITE_P(All, PcieDeviceContract, testing::ValuesIn(kDeviceContract),
                         NameOfDeviceClause);

class DeviceGroupContract : public testing::TestWithParam<DeviceClause> {};
TEST_P(DeviceGroupContract, Holds) {
  GetParam().check([] {
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < 2; ++i) {
      devices.push_back(EmulatedDevice{.memory_bytes = kDeviceContractMemory}.Open());
    }
    return *Device::Join(std::move(devices));
  });
}
INSTANTIATE_TEST_SUITE_P(All, DeviceGroupContract, testing::ValuesIn(kDeviceContract),
                         NameOfDeviceClause);

}  // namespace
}  // namespace atollrt
