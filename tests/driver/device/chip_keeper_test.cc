// SPDX-License-Identifier: Apache-2.0
//
// What is done about each kind of fault. The device is emulated, the bus faulty;
// tests/integration/bad_cable_test.cc has faults by the thousand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/support/forwarding_chip.h"
#include "tests/support/one_shaky_device.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

// One whose runs and resets fail.
class FailingChip final : public ForwardingChip {
 public:
  using ForwardingChip::ForwardingChip;
  Status Run(const Job&, std::span<const Job>, RequestReport*) override {
    return DeviceLost("pulled");
  }
  Status Recover() override { return DeviceLost("pulled"); }
  Status Reopen() override { return DeviceLost("pulled"); }
};

TEST(Recovery, WithoutFaultsItIsTheDeviceItself) {
  OneDevice one("");
  for (int i = 0; i < 3; ++i) one.ExpectRight();
  EXPECT_EQ(one.report.replays, 0);
  EXPECT_FALSE(one.report.on_fallback);
  const DeviceHealth health = one.device->health();
  EXPECT_EQ(health.failures + health.resets + health.reopenings + health.losses, 0u);
}

struct FaultCase {
  const char* script;
  bool reopens;  // otherwise a reset is enough
};

class EachFault : public ::testing::TestWithParam<FaultCase> {};

TEST_P(EachFault, IsOvercomeWithTheSameBytes) {
  OneDevice one(GetParam().script);
  one.ExpectRight();
  one.ExpectRight();
  one.ExpectRight();
  EXPECT_EQ(one.shaky.bus->faults(), 1u);
  EXPECT_EQ(one.device->state(), DeviceState::kReady);
  const DeviceHealth health = one.device->health();
  EXPECT_EQ(health.failures, 1u);
  EXPECT_EQ(health.replays, 1u);
  EXPECT_EQ(health.resets, GetParam().reopens ? 0u : 1u);
  EXPECT_EQ(health.reopenings, GetParam().reopens ? 1u : 0u);
  EXPECT_EQ(health.losses, 0u);
  EXPECT_EQ(health.fallbacks, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, EachFault,
    ::testing::Values(FaultCase{"out 1 drop", false}, FaultCase{"out 2 stall", false},
                      FaultCase{"out 2 shorten 5", false}, FaultCase{"out 3 unplug 50ms", true},
                      FaultCase{"out 1 unplug 700ms moved", true},
                      FaultCase{"out 2 unplug 80ms twice", true}, FaultCase{"in 1 drop", false},
                      FaultCase{"in 1 stall", false}, FaultCase{"in 2 unplug 50ms", true},
                      FaultCase{"event 1 stall", false}, FaultCase{"event 1 drop", false},
                      FaultCase{"event 1 shorten 8", false}, FaultCase{"event 1 corrupt", false},
                      FaultCase{"event 2 unplug 50ms", true}));

TEST(Recovery, ADelayOrAShortReadIsNoFailure) {
  OneDevice one("in 1 shorten 1\nin 3 delay 20ms\nevent 2 delay 20ms");
  for (int i = 0; i < 3; ++i) one.ExpectRight();
  EXPECT_EQ(one.shaky.bus->faults(), 3u);
  EXPECT_EQ(one.device->health().failures, 0u);
}

// Whose first runs end as they are told to, also when it was opened anew in between.
class ScriptedChip final : public ForwardingChip {
 public:
  ScriptedChip(std::unique_ptr<Chip> inner, std::vector<std::function<Status()>>* runs)
      : ForwardingChip(std::move(inner)), runs_(*runs) {}
  Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) override {
    if (runs_.empty()) return ForwardingChip::Run(job, ahead, report);
    const std::function<Status()> run = runs_.front();
    runs_.erase(runs_.begin());
    return run();
  }

 private:
  std::vector<std::function<Status()>>& runs_;
};

TEST(Recovery, OnlyFaultsOfTheProgramAreItsOwn) {
  const auto fault = [] { return CorruptModel("the program faulted"); };
  const auto loss = [] { return DeviceLost("pulled"); };
  for (const int faults : {1, 2}) {
    std::vector<std::function<Status()>> runs = {loss, fault};
    if (faults == 2) runs.push_back(fault);
    OneDevice one("", OnDeviceLoss::kReplay, [&](ShakyDevice* shaky) {
      shaky->wrap_chip = [&](std::unique_ptr<Chip> chip) -> std::unique_ptr<Chip> {
        return std::make_unique<ScriptedChip>(std::move(chip), &runs);
      };
    });
    if (faults == 1) {
      one.ExpectRight();
    } else {
      EXPECT_EQ(one.Run().code(), StatusCode::kCorruptModel);
    }
  }
}

// What waits behind a request that has run for too long gets the chip when it is back, and does not
// pay for the other one's time.
TEST(Recovery, OthersWaitForAChipInTrouble) {
  std::vector<std::function<Status()>> runs;
  OneDevice one("", OnDeviceLoss::kReplay, [&](ShakyDevice* shaky) {
    shaky->wrap_chip = [&](std::unique_ptr<Chip> chip) -> std::unique_ptr<Chip> {
      return std::make_unique<ScriptedChip>(std::move(chip), &runs);
    };
  });
  std::vector<uint8_t> outputs[2] = {std::vector<uint8_t>(4), std::vector<uint8_t>(4)};
  RequestId others[2] = {};
  Status ends[2] = {DeviceLost("has not ended"), DeviceLost("has not ended")};
  std::thread waiter;
  runs.push_back([&]() -> Status {
    for (int i = 0; i < 2; ++i) {
      others[i] = *one.device->Submit({.executable = one.id,
                                       .inputs = {one.input},
                                       .outputs = {outputs[i]},
                                       .timeout = std::chrono::milliseconds(100)});
    }
    waiter = std::thread([&] { ends[0] = one.device->Wait(others[0], nullptr); });
    // Past the deadlines of all three, and the waiter looks at its own.
    one.shaky.clock.AdvanceTo(one.shaky.clock.Now() + std::chrono::milliseconds(900));
    for (int i = 0; i < 20; ++i) {
      std::vector<uint8_t> output(4);
      const auto request =
          one.device->Submit({.executable = one.id, .inputs = {one.input}, .outputs = {output}});
      EXPECT_TRUE(one.device->Cancel(*request).ok());
      EXPECT_EQ(one.device->Wait(*request, nullptr).code(), StatusCode::kCancelled);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return DeviceLost("pulled");
  });
  one.ExpectRight();
  waiter.join();
  ends[1] = one.device->Wait(others[1], nullptr);
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.message();
  for (const auto& output : outputs) EXPECT_EQ(output, (std::vector<uint8_t>{2, 3, 4, 5}));
}

TEST(Recovery, ARequestCompletesElsewhereWhenTheDeviceStaysAway) {
  OneDevice one("out 4 unplug never");
  one.ExpectRight();
  for (int i = 0; i < 3; ++i) {
    one.ExpectRight();
    EXPECT_TRUE(one.report.on_fallback);
  }
  EXPECT_EQ(one.device->state(), DeviceState::kFallback);
  const DeviceHealth health = one.device->health();
  EXPECT_EQ(health.losses, 1u);
  EXPECT_EQ(health.fallbacks, 3u);
}

TEST(Recovery, ADeviceThatWasGivenUpIsTakenBack) {
  OneDevice one("out 4 unplug 60000ms");
  one.ExpectRight();
  one.ExpectRight();
  EXPECT_TRUE(one.report.on_fallback);
  // What is loaded in the meantime is there afterwards.
  const auto other = one.device->Load(
      std::make_shared<Executable>(MakeTableExecutable({.name = "two", .offset = 2})));
  ASSERT_TRUE(other.ok()) << other.status().message();
  one.shaky.clock.AdvanceTo(one.shaky.clock.Now() + std::chrono::seconds(61));
  one.ExpectRight();
  EXPECT_FALSE(one.report.on_fallback);
  EXPECT_EQ(one.device->state(), DeviceState::kReady);
  one.id = *other;
  EXPECT_TRUE(one.Run().ok());
  EXPECT_EQ(one.output, (std::vector<uint8_t>{3, 4, 5, 6}));
  EXPECT_FALSE(one.report.on_fallback);
}

// It is plugged in all the time, but opening it fails for a while: no event of the bus says when.
TEST(Recovery, ADeviceThatCouldNotBeOpenedIsLookedForNowAndThen) {
  for (const bool has_fallback : {true, false}) {
    FakeClock clock;
    const auto open = [&]() -> Result<std::unique_ptr<Chip>> {
      return EmulatedDevice{.memory_bytes = 8 << 20}.OpenChip();
    };
    int attempts = 0;
    int failing = 3;
    ChipKeeper::Options options;
    options.reopen = [&](Deadline) -> Result<std::unique_ptr<Chip>> {
      ++attempts;
      if (failing-- > 0) return DeviceLost("it does not answer");
      return open();
    };
    if (has_fallback) options.open_stand_in = open;
    options.bus_generation = [] { return uint64_t{7}; };
    options.now = clock.Function();
    auto first = open();
    ASSERT_TRUE(first.ok());
    Device device(std::make_unique<FailingChip>(*std::move(first)), options);
    const auto id = device.Load(
        std::make_shared<Executable>(MakeTableExecutable({.name = "one", .offset = 1})));
    ASSERT_TRUE(id.ok());
    const std::vector<uint8_t> input = {1, 2, 3, 4};
    std::vector<uint8_t> output(4);
    const auto run = [&] {
      const auto request =
          device.Submit({.executable = *id, .inputs = {input}, .outputs = {output}});
      return request.ok() ? device.Wait(*request, nullptr) : request.status();
    };
    const auto after = [&](int seconds) {
      clock.AdvanceTo(clock.Now() + std::chrono::seconds(seconds));
      const Status status = run();
      EXPECT_EQ(status.ok(), has_fallback || attempts == 4) << status.message();
      return attempts;
    };
    EXPECT_EQ(after(0), 1);  // fails, and is given up
    EXPECT_EQ(after(4), 1);
    EXPECT_EQ(after(2), 2);  // after 5 s
    EXPECT_EQ(after(9), 2);
    EXPECT_EQ(after(2), 3);  // after 10 s more
    EXPECT_EQ(after(19), 3);
    EXPECT_EQ(after(2), 4);  // after 20 s more
    EXPECT_EQ(device.state(), DeviceState::kReady);
    EXPECT_EQ(output, (std::vector<uint8_t>{2, 3, 4, 5}));
  }
}

TEST(Recovery, WithoutStandInRequestsFailUntilTheDeviceIsBack) {
  OneDevice one("out 4 unplug 60000ms", OnDeviceLoss::kReplay);
  one.ExpectRight();
  const Status status = one.Run();
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(status.message(), HasSubstr("device shaky is away: no device on the bus"));
  EXPECT_EQ(one.device->state(), DeviceState::kLost);
  EXPECT_EQ(one.Run().code(), StatusCode::kDeviceLost);
  one.shaky.clock.AdvanceTo(one.shaky.clock.Now() + std::chrono::seconds(61));
  one.ExpectRight();
  EXPECT_EQ(one.device->state(), DeviceState::kReady);
}

TEST(Recovery, FailMeansAtOnce) {
  OneDevice one("out 4 unplug 300ms", OnDeviceLoss::kFail);
  one.ExpectRight();
  const Deadline before = one.shaky.clock.Now();
  EXPECT_EQ(one.Run().code(), StatusCode::kDeviceLost);
  EXPECT_LT(one.shaky.clock.Now() - before, std::chrono::milliseconds(100));
  EXPECT_EQ(one.device->health().replays, 0u);
  one.shaky.clock.AdvanceTo(one.shaky.clock.Now() + std::chrono::milliseconds(300));
  one.ExpectRight();
}

TEST(Recovery, AProgramThatFaultsAgainIsToBlame) {
  OneDevice one("");
  Executable bad = MakeTableExecutable({.name = "bad"});
  std::get<TableInstruction>(bad.inference_program[1]).count = 1u << 30;
  const auto bad_id = one.device->Load(std::make_shared<Executable>(bad));
  ASSERT_TRUE(bad_id.ok());
  const ExecutableId good_id = std::exchange(one.id, *bad_id);
  const Status status = one.Run();
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(status.message(), HasSubstr("BAD_ADDRESS"));
  EXPECT_EQ(one.device->health().failures, 2u);
  one.id = good_id;
  one.ExpectRight();
}

TEST(Recovery, Cancel) {
  OneDevice one("");
  one.ExpectRight();
  std::vector<uint8_t> output(4);
  const auto request =
      one.device->Submit({.executable = one.id, .inputs = {one.input}, .outputs = {output}});
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(one.device->Unload(one.id).code(), StatusCode::kDeviceBusy);
  EXPECT_TRUE(one.device->Cancel(*request).ok());
  EXPECT_EQ(one.device->Wait(*request, nullptr).code(), StatusCode::kCancelled);
  EXPECT_EQ(one.device->Wait(*request, nullptr).code(), StatusCode::kInvalidArgument);
  one.ExpectRight();
  EXPECT_TRUE(one.device->Unload(one.id).ok());
  EXPECT_EQ(one.Run().code(), StatusCode::kInvalidArgument);
}

TEST(Recovery, RequestsUnderWayWhenAnotherFailsAreSentAgain) {
  OneDevice one("out 6 unplug 50ms");
  one.ExpectRight();
  constexpr int kCount = 5;
  std::vector<std::vector<uint8_t>> outputs(kCount, std::vector<uint8_t>(4));
  std::vector<RequestId> requests;
  for (auto& output : outputs) {
    const auto request =
        one.device->Submit({.executable = one.id, .inputs = {one.input}, .outputs = {output}});
    ASSERT_TRUE(request.ok());
    requests.push_back(*request);
  }
  std::vector<std::thread> threads;
  for (const RequestId request : requests) {
    threads.emplace_back([&, request] {
      const Status status = one.device->Wait(request, nullptr);
      EXPECT_TRUE(status.ok()) << status.message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& output : outputs) EXPECT_EQ(output, (std::vector<uint8_t>{2, 3, 4, 5}));
  EXPECT_EQ(one.device->health().failures, 1u);
  EXPECT_EQ(one.device->health().reopenings, 1u);
}

}  // namespace
}  // namespace atollrt
