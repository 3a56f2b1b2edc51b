// SPDX-License-Identifier: Apache-2.0
//
// Every PcieFunction that a program can have without hardware, held to the same clauses. That of
// Linux is in driver/vfio/vfio_contract_test.cc, over a kernel in memory.
#include "tests/driver/pcie/pcie_function_contract.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "driver/emulator/emulated_pcie.h"
#include "driver/faults/faulty_pcie_bus.h"
#include "driver/profiles/device_profile.h"
#include "driver/recording/pcie_recording.h"

namespace atollrt {
namespace {

std::shared_ptr<PcieBus> EmulatedBusOfOne() {
  CoreOptions options{.profile = *FindDeviceProfile("pcie")};
  options.profile.memory_bytes = 1 << 20;
  return std::make_shared<EmulatedPcieBus>(std::vector<CoreOptions>{options});
}

std::unique_ptr<PcieFunction> OpenFirst(PcieBus& bus) {
  const auto devices = bus.List();
  EXPECT_TRUE(devices.ok() && devices->size() == 1);
  auto function = bus.Open(devices->front());
  EXPECT_TRUE(function.ok()) << function.status().message();
  return *std::move(function);
}

class EmulatedPcieContract : public testing::TestWithParam<PcieFunctionClause> {};
TEST_P(EmulatedPcieContract, Holds) {
  GetParam().check({.open = [] { return OpenFirst(*EmulatedBusOfOne()); }});
}
INSTANTIATE_TEST_SUITE_P(All, EmulatedPcieContract, testing::ValuesIn(kPcieFunctionContract),
                         NameOfClause);

class FaultyPcieContract : public testing::TestWithParam<PcieFunctionClause> {};
TEST_P(FaultyPcieContract, HoldsAsLongAsNothingGoesWrong) {
  FaultyPcieBus bus(EmulatedBusOfOne(), FaultPlan(), {});
  GetParam().check({.open = [&] { return OpenFirst(bus); }});
}
INSTANTIATE_TEST_SUITE_P(All, FaultyPcieContract, testing::ValuesIn(kPcieFunctionContract),
                         NameOfClause);

class RecordingPcieContract : public testing::TestWithParam<PcieFunctionClause> {};
TEST_P(RecordingPcieContract, Holds) {
  const std::string path =
      testing::TempDir() + "contract_" + GetParam().name + std::to_string(getpid()) + ".pcapng";
  {
    const auto bus = RecordingPcieBus::Create(EmulatedBusOfOne(), path);
    ASSERT_TRUE(bus.ok()) << bus.status().message();
    GetParam().check({.open = [&] { return OpenFirst(**bus); }});
  }
  std::filesystem::remove(path);
}
INSTANTIATE_TEST_SUITE_P(All, RecordingPcieContract, testing::ValuesIn(kPcieFunctionContract),
                         NameOfClause);

}  // namespace
}  // namespace atollrt
