// SPDX-License-Identifier: Apache-2.0
#include "driver/vfio/vfio_function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "driver/vfio/vfio_bus.h"
#include "tests/support/fake_vfio.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kLong = 60'000;

class VfioFunctionTest : public ::testing::Test {
 protected:
  void SetUp() override { root_.Plug({}); }
  std::unique_ptr<PcieFunction> Open() {
    auto function = bus_.Open({.id = kAtollPcieId, .address = "0000:01:00.0"});
    EXPECT_TRUE(function.ok()) << function.status().message();
    return function.ok() ? *std::move(function) : nullptr;
  }

  FakeRoot root_;
  FakeVfio kernel_;
  VfioBus bus_{{.root = root_.path(), .calls = &kernel_}};
};

TEST_F(VfioFunctionTest, TheEndComesInOrder) {
  auto function = Open();
  ASSERT_TRUE(function->EnableInterrupts(3).ok());
  auto mapping = function->Allocate(5000, DmaDirection::kBoth);
  ASSERT_TRUE(mapping.ok());
  kernel_.TakeLog();
  function = nullptr;
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("bus master off", "irqs off", "unmap 100000+2000",
                                             "close device", "close group", "close container"));
  // The memory stays whoever's it is.
  (*mapping)->bytes()[4999] = 1;
}

TEST_F(VfioFunctionTest, AMappingEndsBeforeItsMemory) {
  const auto function = Open();
  auto mapping = function->Allocate(1, DmaDirection::kToDevice);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ((*mapping)->bytes().size(), 1u);
  EXPECT_EQ((*mapping)->bytes()[0], 0);
  EXPECT_EQ(kernel_.num_mappings(), 1u);
  *mapping = nullptr;
  EXPECT_EQ(kernel_.num_mappings(), 0u);
  EXPECT_EQ(function->Allocate(0, DmaDirection::kBoth).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(function->Allocate(UINT64_MAX, DmaDirection::kBoth).code(),
            StatusCode::kInvalidArgument);
  kernel_.failures["map"] = {ENOMEM};
  EXPECT_EQ(function->Allocate(1, DmaDirection::kBoth).code(), StatusCode::kResourceExhausted);
}

TEST_F(VfioFunctionTest, ABusMasterThatDoesNotStopIsReset) {
  kernel_.function.bus_master_sticks = true;
  Open();
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("open /dev/vfio/7", "open /dev/vfio/vfio",
                                             "get 0000:01:00.0", "bus master on", "reset",
                                             "close device", "close group", "close container"));
}

TEST_F(VfioFunctionTest, RegistersAreMappedWhereThatIsAllowed) {
  kernel_.function.sparse = {{0, 0x46000}, {0x47000, 0xb9000}};
  const auto function = Open();
  kernel_.TakeLog();
  for (const uint64_t offset : {0x0u, 0x45ff8u, 0x47000u, 0xffff8u}) {
    ASSERT_TRUE(function->Write64(2, offset, 0x1122334455667788 + offset).ok());
    EXPECT_EQ(*function->Read64(2, offset), 0x1122334455667788 + offset);
    EXPECT_EQ(*function->Read32(2, offset), 0x55667788 + offset);
    ASSERT_TRUE(function->Write32(2, offset + 4, 7).ok());
    EXPECT_EQ(*function->Read64(2, offset) >> 32, 7u);
  }
  EXPECT_THAT(kernel_.TakeLog(), IsEmpty());
  // The page with the table of interrupts.
  ASSERT_TRUE(function->Write64(2, 0x46008, 42).ok());
  EXPECT_EQ(*function->Read32(2, 0x46008), 42u);
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("write by call", "read by call"));
}

TEST_F(VfioFunctionTest, RegistersThatCannotBeMappedAreReachedByCalls) {
  kernel_.function.may_map = false;
  const auto function = Open();
  ASSERT_TRUE(function->Write32(0, 0x3ffc, 42).ok());
  EXPECT_EQ(*function->Read32(0, 0x3ffc), 42u);
  EXPECT_THAT(kernel_.TakeLog(), AllOf(Contains("write by call"), Contains("read by call")));
}

TEST_F(VfioFunctionTest, RegistersOutsideOfTheirBarAreRefused) {
  const auto function = Open();
  const std::pair<uint32_t, uint64_t> wrong[] = {{0, 0x4000},
                                                 {0, 0x3ffe},
                                                 {0, 1},
                                                 {1, 0},
                                                 {2, 0x100000},
                                                 {5, 0},
                                                 {6, 0},
                                                 {99, 0},
                                                 {0, UINT64_MAX - 3},
                                                 {0, UINT64_MAX - 7}};
  for (const auto& [bar, offset] : wrong) {
    EXPECT_EQ(function->Read32(bar, offset).code(), StatusCode::kInvalidArgument) << offset;
    EXPECT_EQ(function->Write64(bar, offset, 0).code(), StatusCode::kInvalidArgument) << offset;
  }
  EXPECT_EQ(function->Read64(0, 0x3ffc).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(function->Read32(0, 0x4000).status().message(),
              HasSubstr("BAR 0 of pci:0000:01:00.0 has 16384 bytes"));
}

TEST_F(VfioFunctionTest, BarsOfAnySizeAreNoMatter) {
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{100}, uint64_t{1} << 39, uint64_t{1} << 62,
        uint64_t{INT64_MAX}, UINT64_MAX}) {
    FakeVfio kernel;
    kernel.function.bar_bytes = {bytes, 0, bytes, 0, 0, bytes};
    kernel.function.sparse = {{0, bytes}, {0x1000, UINT64_MAX}, {UINT64_MAX - 0xfff, 0x2000}};
    VfioBus bus({.root = root_.path(), .calls = &kernel});
    const auto function = bus.Open({.id = kAtollPcieId, .address = "0000:01:00.0"});
    ASSERT_TRUE(function.ok());
    EXPECT_EQ((*function)->Read32(0, bytes & ~3ull).code(), StatusCode::kInvalidArgument) << bytes;
  }
}

TEST_F(VfioFunctionTest, InterruptsAreReportedOnce) {
  const auto function = Open();
  EXPECT_EQ(function->AwaitInterrupts(~0ull, In(0)).code(), StatusCode::kTimeout);
  ASSERT_TRUE(function->EnableInterrupts(16).ok());
  kernel_.RaiseVector(3);
  kernel_.RaiseVector(3);
  kernel_.RaiseVector(15);
  kernel_.RaiseVector(0);
  EXPECT_EQ(*function->AwaitInterrupts(0x8008, In(kLong)), 0x8008u);
  EXPECT_EQ(function->AwaitInterrupts(0x8008, In(0)).code(), StatusCode::kTimeout);
  EXPECT_EQ(*function->AwaitInterrupts(~0ull, In(-1000)), 1u);  // takes what is there
  std::thread device([&] { kernel_.RaiseVector(1); });
  EXPECT_EQ(*function->AwaitInterrupts(2, In(kLong)), 2u);
  device.join();
  // What was raised before is forgotten.
  kernel_.RaiseVector(2);
  ASSERT_TRUE(function->EnableInterrupts(4).ok());
  EXPECT_EQ(function->AwaitInterrupts(~0ull, In(0)).code(), StatusCode::kTimeout);
  ASSERT_TRUE(function->EnableInterrupts(0).ok());
  EXPECT_THAT(kernel_.TakeLog(), Contains("irqs off").Times(2));
  EXPECT_EQ(function->AwaitInterrupts(~0ull, In(0)).code(), StatusCode::kTimeout);
}

TEST_F(VfioFunctionTest, MsixThatIsRefused) {
  const auto function = Open();
  const auto more = function->EnableInterrupts(17);
  EXPECT_EQ(more.code(), StatusCode::kUnsupported);
  EXPECT_THAT(more.message(), HasSubstr("has 16 MSI-X vectors and 17 are needed"));
  for (const int error : {EINVAL, ENOSPC, -5}) {
    kernel_.failures["set_irqs"] = {error};
    const auto refused = function->EnableInterrupts(13);
    EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
    EXPECT_THAT(refused.message(), AllOf(HasSubstr("refuses 13 MSI-X vectors"),
                                         HasSubstr(error < 0 ? "it has 5 left" : "(")));
  }
  ASSERT_TRUE(function->EnableInterrupts(13).ok());
  kernel_.function.vectors = 0;
  auto none = std::make_unique<FakeVfio>();
  none->function.vectors = 0;
  VfioBus bus({.root = root_.path(), .calls = none.get()});
  auto other = bus.Open({.id = kAtollPcieId, .address = "0000:01:00.0"});
  ASSERT_TRUE(other.ok());
  EXPECT_THAT((*other)->EnableInterrupts(1).message(), HasSubstr("pci=nomsi"));
  *other = nullptr;
  kernel_.function.vectors = 16;
}

TEST_F(VfioFunctionTest, CancelEndsWaitsUntilReset) {
  const auto function = Open();
  ASSERT_TRUE(function->EnableInterrupts(1).ok());
  std::thread canceller([&] { function->Cancel(); });
  EXPECT_EQ(function->AwaitInterrupts(1, In(kLong)).code(), StatusCode::kCancelled);
  canceller.join();
  kernel_.RaiseVector(0);
  EXPECT_EQ(function->AwaitInterrupts(1, In(kLong)).code(), StatusCode::kCancelled);
  ASSERT_TRUE(function->Reset(In(kLong)).ok());
  EXPECT_EQ(function->AwaitInterrupts(1, In(1)).code(), StatusCode::kTimeout);
  ASSERT_TRUE(function->EnableInterrupts(1).ok());
  kernel_.RaiseVector(0);
  EXPECT_EQ(*function->AwaitInterrupts(1, In(kLong)), 1u);
}

TEST_F(VfioFunctionTest, AResetStopsDmaFirstAndKeepsMappings) {
  const auto function = Open();
  ASSERT_TRUE(function->EnableInterrupts(1).ok());
  const auto mapping = function->Allocate(1, DmaDirection::kBoth);
  kernel_.TakeLog();
  kernel_.failures["reset"] = {EAGAIN, EBUSY};  // the kernel is at it
  ASSERT_TRUE(function->Reset(In(kLong)).ok());
  EXPECT_THAT(kernel_.TakeLog(),
              ElementsAre("bus master off", "irqs off", "reset", "bus master on"));
  EXPECT_EQ(kernel_.num_mappings(), 1u);
  kernel_.failures["reset"] = {EAGAIN, EAGAIN};
  EXPECT_EQ(function->Reset(In(0)).code(), StatusCode::kTimeout);
  kernel_.failures["reset"] = {EIO};
  EXPECT_EQ(function->Reset(In(kLong)).code(), StatusCode::kDeviceLost);
}

TEST_F(VfioFunctionTest, AFunctionWithoutResetSaysSo) {
  kernel_.function.can_reset = false;
  EXPECT_EQ(Open()->Reset(In(kLong)).code(), StatusCode::kUnsupported);
}

TEST_F(VfioFunctionTest, OneThatHasLeftTheBusIsNotPresent) {
  const auto function = Open();
  EXPECT_TRUE(function->is_present());
  kernel_.is_gone = true;
  EXPECT_FALSE(function->is_present());
  // For which the kernel would wait for a minute.
  kernel_.TakeLog();
  EXPECT_EQ(function->Reset(In(kLong)).code(), StatusCode::kDeviceLost);
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre());
}

TEST_F(VfioFunctionTest, WhatTheSystemWantsBackItGetsThoughNobodyUsesIt) {
  auto function = Open();
  ASSERT_TRUE(function->EnableInterrupts(2).ok());
  std::vector<uint8_t> memory(8192);
  auto mapping = function->Map(memory, DmaDirection::kBoth);
  ASSERT_TRUE(mapping.ok());
  ASSERT_TRUE(function->Write32(0, 0, 42).ok());
  kernel_.TakeLog();
  kernel_.AskBack();
  kernel_.WaitForLog("close container");
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("bus master off", "irqs off", HasSubstr("unmap "),
                                             "close device", "close group", "close container"));
  for (const Status& status :
       {function->Read32(0, 0).status(), function->Read64(2, 0).status(),
        function->Write32(0, 0, 1), function->Write64(2, 0, 1),
        function->Map(memory, DmaDirection::kBoth).status(),
        function->Allocate(1, DmaDirection::kBoth).status(), function->EnableInterrupts(1),
        function->AwaitInterrupts(1, In(kLong)).status(), function->Reset(In(kLong))}) {
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(status.message(), HasSubstr("the system wants it back"));
  }
  EXPECT_FALSE(function->is_present());
  function->Cancel();
  *mapping = nullptr;
  // It can be opened again, should it come back, while the old one is still there.
  const auto again = Open();
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(again->is_present());
  function = nullptr;
  EXPECT_TRUE(again->is_present());
}

TEST_F(VfioFunctionTest, AWaitEndsWhenTheSystemWantsTheFunctionBack) {
  const auto function = Open();
  ASSERT_TRUE(function->EnableInterrupts(1).ok());
  std::thread asker([&] { kernel_.AskBack(); });
  EXPECT_EQ(function->AwaitInterrupts(1, In(kLong)).code(), StatusCode::kDeviceLost);
  asker.join();
}

TEST_F(VfioFunctionTest, RegistersThatAreInUseWhileTheFunctionIsGivenBack) {
  const auto function = Open();
  std::atomic<bool> has_begun = false;
  std::thread user([&] {
    while (function->Read64(2, 0x100).ok() && function->Write32(2, 0x100, 1).ok()) {
      has_begun = true;
    }
  });
  while (!has_begun) std::this_thread::yield();
  kernel_.AskBack();
  user.join();
  EXPECT_EQ(function->Read32(2, 0x100).code(), StatusCode::kDeviceLost);
}

TEST_F(VfioFunctionTest, AKernelThatDoesNotAskIsNoObstacle) {
  kernel_.function.has_request = false;
  const auto function = Open();
  EXPECT_TRUE(function->Read32(0, 0).ok());
}

}  // namespace
}  // namespace atollrt
