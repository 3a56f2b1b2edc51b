// SPDX-License-Identifier: Apache-2.0
//
// The system's PCIe bus over a stand-in for vfio-pci with a Coral on it (tools/coral-stub of the
// reference data), which CMake puts in front of the C library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "driver/pcie/pcie_bus.h"
#include "tests/support/absent.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kRegisters = 2;  // BAR
constexpr uint64_t kScuControl3 = 0x1a318;
constexpr uint64_t kScuControl2 = 0x1a314;
constexpr uint64_t kQueueBase = 0x48590;

Deadline In(int ms) { return Clock::now() + std::chrono::milliseconds(ms); }

class VfioStub : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* preloaded = getenv("LD_PRELOAD");
    if (preloaded == nullptr || strstr(preloaded, "apex_stub") == nullptr) {
      ReportAbsent("reference data: tools/coral-stub, in place of vfio-pci");
      GTEST_SKIP();
    }
    bus_ = SystemPcieBus();
    auto devices = bus_->List();
    ASSERT_TRUE(devices.ok()) << devices.status().message();
    ASSERT_EQ(devices->size(), 1u);
    info_ = devices->front();
  }
  std::unique_ptr<PcieFunction> Open() {
    auto function = bus_->Open(info_);
    EXPECT_TRUE(function.ok()) << function.status().message();
    return function.ok() ? *std::move(function) : nullptr;
  }

  std::shared_ptr<PcieBus> bus_;
  PcieDeviceInfo info_;
};

TEST_F(VfioStub, IsListedByItsAddress) {
  EXPECT_EQ(info_.id, kCoralPcieId);
  EXPECT_EQ(info_.address, "0000:01:00.0");
  EXPECT_EQ(info_.driver, "vfio-pci");
  EXPECT_EQ(info_.link_lanes, 0u);
  EXPECT_EQ(SystemPcieBus(), bus_);
}

TEST_F(VfioStub, IsOpenedOnceAndAgain) {
  auto first = Open();
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(first->is_present());
  EXPECT_EQ(bus_->Open(info_).code(), StatusCode::kDeviceBusy);
  first = nullptr;
  EXPECT_NE(Open(), nullptr);
}

TEST_F(VfioStub, RegistersAreReadAndWrittenInBothWidths) {
  const auto function = Open();
  ASSERT_NE(function, nullptr);
  EXPECT_EQ(*function->Read32(kRegisters, kScuControl3), 0x80050410u);
  // Out of reset; then the queue's registers answer.
  ASSERT_TRUE(function->Write32(kRegisters, kScuControl3, 0x80050410u & ~0xC000u).ok());
  ASSERT_TRUE(function->Write32(kRegisters, kScuControl2, 2u << 2).ok());
  ASSERT_TRUE(function->Write64(kRegisters, kQueueBase, 0x123456789abcdef0).ok());
  EXPECT_EQ(*function->Read64(kRegisters, kQueueBase), 0x123456789abcdef0u);
  EXPECT_EQ(function->Read32(kRegisters, 1 << 20).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(function->Read64(kRegisters, 4).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(function->Read32(1, 0).code(), StatusCode::kInvalidArgument);
}

TEST_F(VfioStub, MemoryKeepsItsPlaceInThePageAndAddressesAreGivenAgain) {
  const auto function = Open();
  ASSERT_NE(function, nullptr);
  auto one = function->Allocate(10'000, DmaDirection::kBoth);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ((*one)->iova() % kDmaPageBytes, 0u);
  EXPECT_EQ((*one)->bytes().size(), 10'000u);
  std::vector<uint8_t> memory(20'000);
  const std::span<uint8_t> part(memory.data() + 123, 9000);
  auto two = function->Map(part, DmaDirection::kToDevice);
  ASSERT_TRUE(two.ok()) << two.status().message();
  EXPECT_EQ((*two)->iova() % kDmaPageBytes,
            reinterpret_cast<uintptr_t>(part.data()) % kDmaPageBytes);
  const uint64_t first = (*one)->iova();
  *one = nullptr;
  one = function->Allocate(10'000, DmaDirection::kBoth);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ((*one)->iova(), first);
}

TEST_F(VfioStub, InterruptsAreConnectedOnceTheCoreIsOutOfResetAndWaitsEnd) {
  const auto function = Open();
  ASSERT_NE(function, nullptr);
  EXPECT_EQ(function->EnableInterrupts(65).code(), StatusCode::kUnsupported);
  ASSERT_TRUE(function->EnableInterrupts(13).ok());
  EXPECT_EQ(function->AwaitInterrupts(0x1fff, In(1)).code(), StatusCode::kTimeout);
  function->Cancel();
  EXPECT_EQ(function->AwaitInterrupts(0x1fff, In(60'000)).code(), StatusCode::kCancelled);
  ASSERT_TRUE(function->Reset(In(10'000)).ok());
  EXPECT_EQ(function->AwaitInterrupts(0x1fff, In(1)).code(), StatusCode::kTimeout);
}

}  // namespace
}  // namespace atollrt
