// SPDX-License-Identifier: Apache-2.0
//
// What is done about each kind of fault. The device is emulated, the bus faulty;
// tests/integration/bad_cable_test.cc has faults by the thousand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "driver/atoll1/protocol.h"
#include "tests/support/forwarding_chip.h"
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

// One whose runs and resets fail.
class FailingChip final : public ForwardingChip {
 public:
  using ForwardingChip::ForwardingChip;
  Status Run(const Job&, RequestReport*) override { return DeviceLost("pulled"); }
  Status Recover() override { return DeviceLost("pulled"); }
  Status Reopen() override { return DeviceLost("pulled"); }
};

// Adds 1 to each of four bytes.
class OneDevice {
 public:
  explicit OneDevice(
      std::string_view script, OnDeviceLoss on_loss = OnDeviceLoss::kFallback,
      const std::function<void(ShakyDevice*)>& set_up = [](ShakyDevice*) {}) {
    shaky.plan = Script(script);
    shaky.on_loss = on_loss;
    set_up(&shaky);
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
  std::unique_ptr<Device> device;
  ExecutableId id = 0;
  const std::vector<uint8_t> input = {1, 2, 3, 4};
  std::vector<uint8_t> output;
  RequestReport report;
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
  Status Run(const Job& job, RequestReport* report) override {
    if (runs_.empty()) return ForwardingChip::Run(job, report);
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

TEST(Recovery, ResetAndCancel) {
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

// A device that is slower at times: of its reads so many in a hundred bring nothing in time.
class SluggishBus : public UsbBus {
 public:
  SluggishBus(std::shared_ptr<UsbBus> inner, int percent)
      : inner_(std::move(inner)), percent_(percent) {}
  Result<std::vector<UsbDeviceInfo>> List() override { return inner_->List(); }
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device, uint8_t number) override {
    ATOLL_ASSIGN_OR_RETURN(auto transport, inner_->Open(device, number));
    return std::unique_ptr<UsbTransport>(
        std::make_unique<Transport>(std::move(transport), &rng_, percent_));
  }
  uint64_t generation() override { return inner_->generation(); }
  bool WaitForChange(uint64_t seen, Deadline deadline) override {
    return inner_->WaitForChange(seen, deadline);
  }

 private:
  class Transport : public UsbTransport {
   public:
    Transport(std::unique_ptr<UsbTransport> inner, Rng* rng, int percent)
        : inner_(std::move(inner)), rng_(rng), percent_(percent) {}
    Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline time) override {
      return inner_->Control(setup, data, time);
    }
    Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline time) override {
      return inner_->BulkOut(endpoint, data, time);
    }
    Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline time) override {
      if (rng_->Int(0, 99) < percent_) return Timeout("not yet");
      // Or not all in one piece.
      if (endpoint == kOutputEndpoint && data.size() > 1 && rng_->Int(0, 99) < percent_) {
        data = data.first(1);
      }
      return inner_->BulkIn(endpoint, data, time);
    }
    Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data, Deadline time) override {
      return inner_->InterruptIn(endpoint, data, time);
    }
    void Cancel() override { inner_->Cancel(); }
    Status Reset(Deadline time) override { return inner_->Reset(time); }

   private:
    const std::unique_ptr<UsbTransport> inner_;
    Rng* const rng_;
    const int percent_;
  };
  const std::shared_ptr<UsbBus> inner_;
  const int percent_;
  Rng rng_{1};
};

// What is hit, and so what becomes of it, does not depend on how often the host had to wait.
TEST(FaultPlans, HitTheSameTransfersOfASlowDevice) {
  int failures = 0;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(TestCount(8)); ++seed) {
    std::vector<std::string> ends;
    for (const int percent : {0, 10, 30}) {
      OneDevice one("", OnDeviceLoss::kFallback, [&](ShakyDevice* shaky) {
        shaky->plan = *ReadFaultPlan(Format("seed:%d:1/15", static_cast<int>(seed)));
        shaky->wrap = [percent](std::shared_ptr<UsbBus> bus) {
          return std::make_shared<SluggishBus>(std::move(bus), percent);
        };
      });
      for (int i = 0; i < 8; ++i) one.ExpectRight();
      const DeviceHealth health = one.device->health();
      failures += health.failures > 0;
      ends.push_back(Format(
          "%d faults, %d failures, %d resets, %d reopenings, %d losses, %d replays, %d fallbacks",
          static_cast<int>(one.shaky.bus->faults()), static_cast<int>(health.failures),
          static_cast<int>(health.resets), static_cast<int>(health.reopenings),
          static_cast<int>(health.losses), static_cast<int>(health.replays),
          static_cast<int>(health.fallbacks)));
    }
    EXPECT_EQ(ends[1], ends[0]) << "seed " << seed;
    EXPECT_EQ(ends[2], ends[0]) << "seed " << seed;
  }
  EXPECT_GT(failures, 0);
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
