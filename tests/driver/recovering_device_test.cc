// SPDX-License-Identifier: Apache-2.0
//
// What a RecoveringDevice does about each kind of fault. The device is emulated, the bus faulty;
// tests/integration/bad_cable_test.cc has faults by the thousand.
#include "driver/recovering_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/rng.h"
#include "tests/support/shaky_device.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

FaultPlan Script(std::string_view text) {
  auto plan = ParseFaultScript(text);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *std::move(plan) : FaultPlan();
}

// Another device that loads, but whose requests and resets fail.
class FailingDevice : public Device {
 public:
  explicit FailingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  const DeviceInfo& info() const override { return device_->info(); }
  DeviceState state() const override { return DeviceState::kLost; }
  Result<ExecutableId> Load(std::shared_ptr<const AnyExecutable> executable,
                            const LoadOptions& options) override {
    return device_->Load(std::move(executable), options);
  }
  Status Unload(ExecutableId id) override { return device_->Unload(id); }
  Result<RequestId> Submit(const Request&) override { return DeviceLost("pulled"); }
  Status Wait(RequestId, RequestReport*) override { return DeviceLost("pulled"); }
  Status Cancel(RequestId) override { return {}; }
  Status Reset() override { return DeviceLost("pulled"); }
  DeviceHealth health() const override { return {}; }

 private:
  const std::unique_ptr<Device> device_;
};

// Adds 1 to each of four bytes.
class OneDevice {
 public:
  explicit OneDevice(std::string_view script, OnDeviceLoss on_loss = OnDeviceLoss::kFallback) {
    shaky.plan = Script(script);
    shaky.on_loss = on_loss;
    device = shaky.Open();
    const auto loaded = device->Load(
        std::make_shared<Executable>(MakeTableExecutable({.name = "one", .offset = 1})));
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    id = *loaded;
  }

  Status Run() {
    output.assign(4, 0xEE);
    const auto request = device->Submit({.executable = id,
                                         .inputs = {input},
                                         .outputs = {output},
                                         .timeout = std::chrono::milliseconds(500)});
    if (!request.ok()) return request.status();
    return device->Wait(*request, &report);
  }
  void ExpectRight() {
    const Status status = Run();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(output, (std::vector<uint8_t>{2, 3, 4, 5}));
  }

  ShakyDevice shaky;
  std::unique_ptr<RecoveringDevice> device;
  ExecutableId id = 0;
  const std::vector<uint8_t> input = {1, 2, 3, 4};
  std::vector<uint8_t> output;
  RequestReport report;
};

TEST(RecoveringDevice, WithoutFaultsItIsTheDeviceItself) {
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
                      FaultCase{"out 2 unplug 80ms twice", true},
                      // The first reads of 81 and 82 drain them when the device is opened.
                      FaultCase{"in 2 drop", false}, FaultCase{"in 2 stall", false},
                      FaultCase{"in 3 unplug 50ms", true}, FaultCase{"event 2 stall", false},
                      FaultCase{"event 2 drop", false}, FaultCase{"event 2 shorten 8", false},
                      FaultCase{"event 2 corrupt", false}, FaultCase{"event 3 unplug 50ms", true}));

TEST(RecoveringDevice, ADelayOrAShortReadIsNoFailure) {
  OneDevice one("in 2 shorten 1\nin 4 delay 20ms\nevent 3 delay 20ms");
  for (int i = 0; i < 3; ++i) one.ExpectRight();
  EXPECT_EQ(one.shaky.bus->faults(), 3u);
  EXPECT_EQ(one.device->health().failures, 0u);
}

TEST(RecoveringDevice, ARequestCompletesElsewhereWhenTheDeviceStaysAway) {
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

TEST(RecoveringDevice, ADeviceThatWasGivenUpIsTakenBack) {
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
TEST(RecoveringDevice, ADeviceThatCouldNotBeOpenedIsLookedForNowAndThen) {
  for (const bool has_fallback : {true, false}) {
    FakeClock clock;
    const auto open = [&]() -> Result<std::unique_ptr<Device>> {
      return EmulatedDevice{.memory_bytes = 8 << 20}.Open();
    };
    int attempts = 0;
    int failing = 3;
    RecoveringDevice::Options options;
    options.reopen = [&](Deadline) -> Result<std::unique_ptr<Device>> {
      ++attempts;
      if (failing-- > 0) return DeviceLost("it does not answer");
      return open();
    };
    if (has_fallback) options.open_fallback = open;
    options.bus_generation = [] { return uint64_t{7}; };
    options.now = clock.Function();
    auto first = open();
    ASSERT_TRUE(first.ok());
    RecoveringDevice device(std::make_unique<FailingDevice>(*std::move(first)), options);
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

TEST(RecoveringDevice, WithoutStandInRequestsFailUntilTheDeviceIsBack) {
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

TEST(RecoveringDevice, FailMeansAtOnce) {
  OneDevice one("out 4 unplug 300ms", OnDeviceLoss::kFail);
  one.ExpectRight();
  const Deadline before = one.shaky.clock.Now();
  EXPECT_EQ(one.Run().code(), StatusCode::kDeviceLost);
  EXPECT_LT(one.shaky.clock.Now() - before, std::chrono::milliseconds(100));
  EXPECT_EQ(one.device->health().replays, 0u);
  one.shaky.clock.AdvanceTo(one.shaky.clock.Now() + std::chrono::milliseconds(300));
  one.ExpectRight();
}

TEST(RecoveringDevice, AProgramThatFaultsAgainIsToBlame) {
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

TEST(RecoveringDevice, ResetAndCancel) {
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
  EXPECT_TRUE(one.device->Reset().ok());
  one.ExpectRight();
  EXPECT_TRUE(one.device->Unload(one.id).ok());
  EXPECT_EQ(one.Run().code(), StatusCode::kInvalidArgument);
}

TEST(RecoveringDevice, RequestsUnderWayWhenAnotherFailsAreSentAgain) {
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

TEST(FaultPlans, AreReadOrExplained) {
  const FaultPlan plan = Script(
      "# a comment\nspeed high\nthrottle 20MB/s\n out 12 unplug 300ms twice # here\n"
      "in 3 shorten 100\ncontrol 4 stall\nevent 1 corrupt\nopen 2 unplug never\n");
  EXPECT_TRUE(plan.high_speed);
  EXPECT_EQ(plan.bytes_per_second, 20'000'000u);
  ASSERT_EQ(plan.faults.size(), 5u);
  EXPECT_EQ(Describe(plan.faults[0]), "unplug 300ms twice in out 12");
  EXPECT_EQ(Describe(plan.faults[1]), "shorten 100 in in 3");
  EXPECT_EQ(Describe(plan.faults[4]), "unplug never in open 2");

  const auto seeded = ReadFaultPlan("seed:7:1/400");
  ASSERT_TRUE(seeded.ok());
  EXPECT_EQ(seeded->seed, 7u);
  EXPECT_DOUBLE_EQ(seeded->probability, 1.0 / 400);

  const auto refusal = [](std::string_view text) {
    const auto result = ParseFaultScript(text);
    return result.ok() ? std::string("accepted") : result.status().message();
  };
  EXPECT_THAT(refusal("\nfoo 1 drop"), HasSubstr("line 2 of the fault script, 'foo 1 drop'"));
  EXPECT_THAT(refusal("out 0 drop"), HasSubstr("its number, from 1"));
  EXPECT_THAT(refusal("out 1 explode"), HasSubstr("third comes drop"));
  EXPECT_THAT(refusal("out 1 corrupt"), HasSubstr("cannot happen"));
  EXPECT_THAT(refusal("in 1 shorten x"), HasSubstr("shorten 100"));
  EXPECT_THAT(refusal("in 1 unplug 5"), HasSubstr("milliseconds"));
  EXPECT_THAT(refusal("in 1 unplug 5ms later"), HasSubstr("moved or twice"));
  EXPECT_THAT(refusal("in 1 drop now"), HasSubstr("too many words"));
  EXPECT_THAT(refusal("throttle 5"), HasSubstr("throttle 20MB/s"));
  EXPECT_EQ(ReadFaultPlan("seed:x:1").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFaultPlan("seed:1:2").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFaultPlan("/nonexistent").code(), StatusCode::kNotFound);
}

TEST(FaultyBus, ShowsASlowerLinkAndTakesItsTime) {
  ShakyDevice shaky;
  shaky.plan = Script("speed high\nthrottle 1MB/s");
  const auto device = shaky.Open();
  EXPECT_EQ(shaky.bus->List()->front().speed, UsbSpeed::kHigh);
  const auto id = device->Load(
      std::make_shared<Executable>(MakeTableExecutable({.name = "large", .count = 100'000})));
  ASSERT_TRUE(id.ok());
  const std::vector<uint8_t> input(100'000);
  std::vector<uint8_t> output(100'000);
  const Deadline before = shaky.clock.Now();
  const auto request = device->Submit({.executable = *id, .inputs = {input}, .outputs = {output}});
  ASSERT_TRUE(device->Wait(*request, nullptr).ok());
  // 100,000 bytes there and back.
  EXPECT_GT(shaky.clock.Now() - before, std::chrono::milliseconds(200));
  EXPECT_LT(shaky.clock.Now() - before, std::chrono::milliseconds(210));
}

}  // namespace
}  // namespace atollrt
