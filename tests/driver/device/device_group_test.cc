// SPDX-License-Identifier: Apache-2.0
//
// Several emulated devices as one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/counting_chip.h"
#include "tests/support/emulated_device.h"
#include "tests/support/forwarding_chip.h"
#include "tests/support/shaky_device.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Executable> AddOne() {
  return std::make_shared<Executable>(MakeTableExecutable({.name = "one", .offset = 1}));
}

TEST(DeviceGroup, RequestsThatAreUnderWayTogetherAreShared) {
  std::atomic<int> runs[3] = {};
  std::vector<std::unique_ptr<Device>> devices;
  for (auto& count : runs) {
    devices.push_back(CountedDevice(&count));
  }
  const auto group = Device::Join(std::move(devices));
  ASSERT_TRUE(group.ok()) << group.status().message();
  Device& device = **group;
  EXPECT_EQ(device.info().name, "emu,emu,emu");
  const auto id = device.Load(AddOne());
  ASSERT_TRUE(id.ok());

  const std::vector<uint8_t> input = {1, 2, 3, 4};
  std::vector<std::vector<uint8_t>> outputs(6, std::vector<uint8_t>(4));
  std::vector<RequestId> requests;
  for (auto& output : outputs) {
    const auto request = device.Submit({.executable = *id, .inputs = {input}, .outputs = {output}});
    ASSERT_TRUE(request.ok());
    requests.push_back(*request);
  }
  EXPECT_EQ(device.Unload(*id).code(), StatusCode::kDeviceBusy);
  for (const RequestId request : requests) EXPECT_TRUE(device.Wait(request, nullptr).ok());
  for (auto& count : runs) EXPECT_EQ(count, 2);
  for (const auto& output : outputs) EXPECT_EQ(output, (std::vector<uint8_t>{2, 3, 4, 5}));
  EXPECT_EQ(device.Wait(requests[0], nullptr).code(), StatusCode::kInvalidArgument);

  // One after the other stay where the parameters are.
  const int before[3] = {runs[0], runs[1], runs[2]};
  for (int i = 0; i < 4; ++i) {
    const auto request =
        device.Submit({.executable = *id, .inputs = {input}, .outputs = {outputs[0]}});
    ASSERT_TRUE(device.Wait(*request, nullptr).ok());
  }
  int used = 0;
  for (int i = 0; i < 3; ++i) used += runs[i] != before[i];
  EXPECT_EQ(used, 1);
  EXPECT_TRUE(device.Unload(*id).ok());
}

TEST(DeviceGroup, AStageIsOnItsDeviceAlone) {
  std::atomic<int> runs[2] = {};
  std::vector<std::unique_ptr<Device>> devices;
  for (auto& count : runs) {
    devices.push_back(CountedDevice(&count));
  }
  const auto group = Device::Join(std::move(devices));
  const auto first = (*group)->Load(AddOne(), {.stage = 0});
  const auto second = (*group)->Load(AddOne(), {.stage = 3});
  const std::vector<uint8_t> input = {1, 2, 3, 4};
  std::vector<uint8_t> output(4);
  for (int i = 0; i < 3; ++i) {
    for (const ExecutableId id : {*first, *second, *second}) {
      const auto request =
          (*group)->Submit({.executable = id, .inputs = {input}, .outputs = {output}});
      ASSERT_TRUE((*group)->Wait(*request, nullptr).ok());
    }
  }
  EXPECT_EQ(runs[0], 3);
  EXPECT_EQ(runs[1], 6);
}

TEST(DeviceGroup, ALostDevicesRequestsGoToAnother) {
  ShakyDevice shaky;
  shaky.plan = *ParseFaultScript("out 4 unplug never");
  shaky.on_loss = OnDeviceLoss::kReplay;
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(shaky.Open());
  devices.push_back(EmulatedDevice().Open());
  const auto group = Device::Join(std::move(devices));
  const auto id = (*group)->Load(AddOne());
  const std::vector<uint8_t> input = {1, 2, 3, 4};
  for (int i = 0; i < 4; ++i) {
    std::vector<uint8_t> output(4);
    const auto request =
        (*group)->Submit({.executable = *id, .inputs = {input}, .outputs = {output}});
    ASSERT_TRUE(request.ok()) << request.status().message();
    const Status status = (*group)->Wait(*request, nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(output, (std::vector<uint8_t>{2, 3, 4, 5}));
  }
  EXPECT_EQ((*group)->state(), DeviceState::kReady);
  EXPECT_EQ((*group)->health().losses, 1u);
}

// Where the other chip is a shaky one, whose runs are counted.
struct ShakyGroup {
  explicit ShakyGroup(std::string_view script, OnDeviceLoss on_loss) {
    shaky.plan = *ParseFaultScript(script);
    shaky.on_loss = on_loss;
    shaky.wrap_chip = [this](std::unique_ptr<Chip> chip) -> std::unique_ptr<Chip> {
      return std::make_unique<CountingChip>(std::move(chip), &shaky_runs);
    };
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(shaky.Open());
    devices.push_back(EmulatedDevice().Open());
    group = *Device::Join(std::move(devices));
  }
  // So many requests at once, which all must be answered by one of the chips.
  void Run(ExecutableId id, int count) {
    const std::vector<uint8_t> input = {1, 2, 3, 4};
    std::vector<std::vector<uint8_t>> outputs(static_cast<size_t>(count), std::vector<uint8_t>(4));
    std::vector<RequestId> requests;
    for (auto& output : outputs) {
      requests.push_back(
          *group->Submit({.executable = id, .inputs = {input}, .outputs = {output}}));
    }
    for (const RequestId request : requests) {
      const Status status = group->Wait(request, nullptr);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    for (const auto& output : outputs) EXPECT_EQ(output, (std::vector<uint8_t>{2, 3, 4, 5}));
  }

  std::atomic<int> shaky_runs{0};
  ShakyDevice shaky;
  std::unique_ptr<Device> group;
};

TEST(DeviceGroup, AChipThatWasAwayGetsWhatWasLoadedMeanwhile) {
  for (const OnDeviceLoss on_loss :
       {OnDeviceLoss::kReplay, OnDeviceLoss::kFallback, OnDeviceLoss::kFail}) {
    ShakyGroup two("out 4 unplug 60000ms", on_loss);
    const auto first = two.group->Load(AddOne());
    two.Run(*first, 2);
    two.Run(*first, 4);
    EXPECT_EQ(two.group->health().losses, 1u);
    const int runs_before = two.shaky_runs;
    const auto second = two.group->Load(AddOne());
    ASSERT_TRUE(second.ok()) << second.status().message();
    two.Run(*second, 2);
    EXPECT_EQ(two.shaky_runs, runs_before);
    two.shaky.clock.AdvanceTo(two.shaky.clock.Now() + std::chrono::seconds(61));
    two.Run(*second, 2);
    two.Run(*first, 2);
    EXPECT_EQ(two.shaky_runs, runs_before + 2) << "on each chip one of each";
    EXPECT_EQ(two.group->health().reopenings, 1u);
    EXPECT_TRUE(two.group->Unload(*first).ok());
    EXPECT_TRUE(two.group->Unload(*second).ok());
  }
}

// A chip that may be back is looked for; what it does not come back for is for another chip, and
// not for the emulator that stands in where there is none.
TEST(DeviceGroup, LooksInVainCostNoRequestItsChip) {
  ShakyGroup two("out 4 unplug never", OnDeviceLoss::kFallback);
  const auto id = two.group->Load(AddOne());
  two.Run(*id, 4);
  ASSERT_EQ(two.group->health().losses, 1u);
  const uint64_t fallbacks = two.group->health().fallbacks;
  for (int i = 0; i < 3; ++i) {
    two.shaky.clock.AdvanceTo(two.shaky.clock.Now() + std::chrono::seconds(61));
    two.Run(*id, 4);
  }
  EXPECT_EQ(two.group->health().fallbacks, fallbacks);
  EXPECT_TRUE(two.group->Unload(*id).ok());
}

TEST(DeviceGroup, WhatIsLoadedNowhereIsNotKept) {
  ShakyDevice shaky;
  shaky.plan = *ParseFaultScript("out 1 unplug 60000ms");
  shaky.on_loss = OnDeviceLoss::kReplay;
  const auto device = shaky.Open();
  const auto id = device->Load(AddOne());
  const std::vector<uint8_t> input(4);
  std::vector<uint8_t> output(4);
  const auto request = device->Submit({.executable = *id, .inputs = {input}, .outputs = {output}});
  EXPECT_EQ(device->Wait(*request, nullptr).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(device->Load(AddOne()).code(), StatusCode::kDeviceLost);
}

TEST(DeviceGroup, ThreadsAndCancellations) {
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < 2; ++i) devices.push_back(EmulatedDevice().Open());
  const auto group = Device::Join(std::move(devices));
  Device& device = **group;
  const auto id = device.Load(AddOne());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<uint8_t> input(4, static_cast<uint8_t>(t));
      for (int i = 0; i < 100; ++i) {
        std::vector<uint8_t> output(4);
        const auto request =
            device.Submit({.executable = *id, .inputs = {input}, .outputs = {output}});
        ASSERT_TRUE(request.ok());
        const bool cancelled = i % 5 == t;
        EXPECT_TRUE(!cancelled || device.Cancel(*request).ok());
        const Status status = device.Wait(*request, nullptr);
        EXPECT_TRUE(status.ok() || (cancelled && status.code() == StatusCode::kCancelled));
        if (status.ok()) {
          EXPECT_EQ(output, std::vector<uint8_t>(4, static_cast<uint8_t>(t + 1)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A slow chip gives every request the time that it needs, and leaves that of others alone.
class TimedChip final : public ForwardingChip {
 public:
  TimedChip(std::chrono::milliseconds timeout_min, std::chrono::milliseconds* given)
      : ForwardingChip(EmulatedDevice().OpenChip()), info_(ForwardingChip::info()), given_(*given) {
    info_.request_timeout_min = timeout_min;
  }
  const DeviceInfo& info() const override { return info_; }
  Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) override {
    given_ = std::chrono::ceil<std::chrono::milliseconds>(job.deadline - Clock::now());
    return ForwardingChip::Run(job, ahead, report);
  }

 private:
  DeviceInfo info_;
  std::chrono::milliseconds& given_;
};

TEST(DeviceGroup, EachChipHasItsOwnTimeout) {
  for (const bool slow_first : {true, false}) {
    std::chrono::milliseconds given[2] = {};
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < 2; ++i) {
      const std::chrono::hours timeout_min((i == 0) == slow_first ? 1 : 0);
      devices.push_back(std::make_unique<Device>(
          std::make_unique<TimedChip>(timeout_min, &given[i]), ChipKeeper::Options()));
    }
    const auto group = Device::Join(std::move(devices));
    const auto id = (*group)->Load(AddOne());
    const std::vector<uint8_t> input = {1, 2, 3, 4};
    std::vector<uint8_t> outputs[2] = {std::vector<uint8_t>(4), std::vector<uint8_t>(4)};
    std::vector<RequestId> requests;
    for (auto& output : outputs) {
      requests.push_back(*(*group)->Submit({.executable = *id,
                                            .inputs = {input},
                                            .outputs = {output},
                                            .timeout = std::chrono::seconds(100)}));
    }
    for (const RequestId request : requests) ASSERT_TRUE((*group)->Wait(request, nullptr).ok());
    const int slow = slow_first ? 0 : 1;
    EXPECT_GT(given[slow], std::chrono::minutes(50));
    EXPECT_LE(given[1 - slow], std::chrono::seconds(100));
    EXPECT_GT(given[1 - slow], std::chrono::seconds(0));
  }
}

TEST(DeviceGroup, IsOfOneKind) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(EmulatedDevice().Open());
  devices.push_back(EmulatedDevice{.rows = 32, .columns = 32}.Open());
  const auto group = Device::Join(std::move(devices));
  EXPECT_EQ(group.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(group.status().message(), HasSubstr("64x64"));
  EXPECT_THAT(group.status().message(), HasSubstr("32x32"));
  EXPECT_EQ(Device::Join({}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atollrt
