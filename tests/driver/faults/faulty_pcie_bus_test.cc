// SPDX-License-Identifier: Apache-2.0
#include "driver/faults/faulty_pcie_bus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "driver/atoll1/ring.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_pcie.h"
#include "tests/support/forwarding_function.h"
#include "tests/support/one_shaky_device.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr uint64_t kScratch = 0x100;  // a register that tells nothing of how far the device is
constexpr uint64_t kDoorbell = static_cast<uint64_t>(RingRegister::kRingTail);
constexpr uint64_t kRingStatus = static_cast<uint64_t>(RingRegister::kRingStatus);
constexpr uint32_t kOnes = 0xFFFFFFFF;

// The one function of a FakePcieBus behind a FaultyPcieBus, under a clock that never waits.
class OneFunction {
 public:
  explicit OneFunction(std::string_view script, bool maps_callers_memory = true) {
    fake->device->maps_callers_memory = maps_callers_memory;
    auto plan = ParseFaultScript(script);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    bus = std::make_shared<FaultyPcieBus>(
        fake, *std::move(plan),
        FaultOptions{.now = clock.Function(),
                     .sleep_until = [this](Deadline time) { clock.AdvanceTo(time); }});
    Open();
  }
  void Open() {
    function = nullptr;
    auto opened = bus->Open(bus->List()->front());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    function = *std::move(opened);
  }
  void Write(uint64_t offset, uint32_t value) {
    EXPECT_TRUE(function->Write32(0, offset, value).ok());
  }
  uint32_t Read(uint64_t offset) { return *function->Read32(0, offset); }
  Result<uint64_t> Await(milliseconds time = milliseconds(1000)) {
    return function->AwaitInterrupts(~uint64_t{0}, clock.Now() + time);
  }
  // What reached the function below since the last call.
  std::vector<std::string> Log() { return std::exchange(fake->device->log, {}); }

  FakeClock clock;
  const std::shared_ptr<FakePcieBus> fake = std::make_shared<FakePcieBus>();
  std::shared_ptr<FaultyPcieBus> bus;
  std::unique_ptr<PcieFunction> function;
};

TEST(FaultyPcieBus, RegistersAreLostRepeatedLateAndWrong) {
  OneFunction one("write 2 drop\nwrite 3 repeat\nwrite 4 delay 30ms\nread 2 corrupt\nread 3 drop");
  EXPECT_THAT(one.Log(), ElementsAre("open"));
  one.Write(kDoorbell, 1);
  one.Write(kDoorbell, 2);
  EXPECT_THAT(one.Log(), ElementsAre("write 214 1"));
  one.Write(kDoorbell, 2);  // rings again, which is no transfer
  one.Write(kDoorbell, 3);
  EXPECT_THAT(one.Log(), ElementsAre("write 214 2", "write 214 3", "write 214 3"));
  const Deadline before = one.clock.Now();
  one.Write(kDoorbell, 4);
  EXPECT_EQ(one.clock.Now() - before, milliseconds(30));
  EXPECT_THAT(one.Log(), ElementsAre("write 214 4"));

  one.Write(kScratch, 0x77);
  EXPECT_EQ(one.Read(kScratch), 0x77u);
  EXPECT_EQ(one.Read(kScratch), 0x77u);  // again, which is no transfer
  for (int i = 0; i < 5; ++i) EXPECT_EQ(one.Read(kRingStatus), 0u);
  EXPECT_EQ(one.Read(kDoorbell), 4u ^ 0x5A);
  EXPECT_EQ(one.Read(kDoorbell), 4u);
  one.Write(kScratch, 0x78);
  EXPECT_EQ(one.Read(kScratch), kOnes);
  EXPECT_EQ(one.Read(kScratch), 0x78u);
  EXPECT_EQ(one.bus->faults(), 5u);
}

TEST(FaultyPcieBus, InterruptsAreLostLateAndSpurious) {
  OneFunction one("vector 1 drop\nvector 2 delay 30ms\nvector 3 repeat");
  one.fake->device->on_write = [&](uint64_t, uint64_t) { one.fake->device->Raise(2); };
  one.Write(kDoorbell, 1);
  EXPECT_EQ(one.Await().code(), StatusCode::kTimeout);
  one.Write(kDoorbell, 2);
  const Deadline before = one.clock.Now();
  EXPECT_EQ(one.Await(milliseconds(10)).code(), StatusCode::kTimeout);
  EXPECT_EQ(*one.Await(), 4u);
  EXPECT_EQ(one.clock.Now() - before, milliseconds(30));
  one.Write(kDoorbell, 3);
  EXPECT_EQ(*one.Await(), 4u);
  EXPECT_EQ(*one.Await(), 4u);  // without a cause
  EXPECT_EQ(one.Await().code(), StatusCode::kTimeout);
  one.Write(kDoorbell, 4);
  EXPECT_EQ(*one.Await(), 4u);
  EXPECT_EQ(one.bus->faults(), 3u);
}

// Its number is that of the write, so that waiting and looking do not move it.
TEST(FaultyPcieBus, WhatWasWrittenIsDamagedOnceAndNowhereElse) {
  for (const bool maps_callers_memory : {true, false}) {
    OneFunction one("vector 2 corrupt", maps_callers_memory);
    auto to_device = one.function->Allocate(4096, DmaDirection::kToDevice);
    auto events = one.function->Allocate(100, DmaDirection::kFromDevice);
    ASSERT_TRUE(to_device.ok() && events.ok());
    std::vector<uint8_t> callers(64);
    std::unique_ptr<DmaMapping> outputs;
    if (maps_callers_memory) {
      outputs = *one.function->Map(callers, DmaDirection::kFromDevice);
      EXPECT_EQ(outputs->bytes().data(), callers.data());
    } else {
      EXPECT_EQ(one.function->Map(callers, DmaDirection::kFromDevice).code(),
                StatusCode::kUnsupported);
    }
    const auto event = [](uint32_t n) {
      return EncodeRingEvent({.event = {}, .clock = 0, .sequence = n});
    };
    one.fake->device->on_write = [&](uint64_t, uint64_t value) {
      const auto bytes = event(static_cast<uint32_t>(value));
      EXPECT_TRUE(one.fake->device->Store((*events)->iova() + 32 * (value % 2), bytes));
      EXPECT_TRUE(one.fake->device->Store((*to_device)->iova(), bytes));
      if (outputs != nullptr) {
        EXPECT_TRUE(one.fake->device->Store(outputs->iova(), bytes));
      }
      one.fake->device->Raise(2);
    };
    const auto slot = [&](uint32_t n) {
      return (*events)->bytes().subspan(32 * (n % 2)).first<kRingEventBytes>();
    };
    for (uint32_t n = 1; n <= 3; ++n) {
      one.Write(kDoorbell, n);
      ASSERT_TRUE(one.Await().ok());
      EXPECT_EQ(DecodeRingEvent(slot(n)).ok(), n != 2);
      const auto sent = event(n);
      EXPECT_TRUE(std::equal(sent.begin(), sent.end(), (*to_device)->bytes().begin()));
      if (outputs != nullptr) {
        EXPECT_TRUE(std::equal(sent.begin(), sent.end(), callers.begin()));
      }
    }
    EXPECT_EQ(one.bus->faults(), 1u);
  }
}

TEST(FaultyPcieBus, AFunctionThatIsGoneIsAllOnesUntilItIsOpenedAgain) {
  OneFunction one("write 1 unplug 300ms moved\nvector 3 unplug 50ms twice\nread 1 unplug never");
  one.Write(kDoorbell, 1);
  EXPECT_THAT(one.Log(), ElementsAre("open", "reset"));  // so that it writes to nothing
  one.fake->device->Raise(2);
  one.Write(kDoorbell, 2);
  EXPECT_EQ(one.Read(kRingStatus), kOnes);
  EXPECT_EQ(*one.function->Read64(0, kScratch), ~uint64_t{0});
  const Deadline before = one.clock.Now();
  EXPECT_EQ(one.Await(milliseconds(100)).code(), StatusCode::kTimeout);
  EXPECT_EQ(one.clock.Now() - before, milliseconds(100));
  EXPECT_FALSE(one.function->is_present());
  EXPECT_EQ(one.function->Reset(one.clock.Now()).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(one.function->EnableInterrupts(4).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(one.function->Allocate(1, DmaDirection::kBoth).code(), StatusCode::kDeviceLost);
  EXPECT_THAT(one.Log(), ElementsAre());
  EXPECT_TRUE(one.bus->List()->empty());
  const uint64_t away = one.bus->generation();
  EXPECT_TRUE(one.bus->WaitForChange(away, one.clock.Now() + milliseconds(1000)));
  EXPECT_EQ(one.bus->List()->front().address, "0000:41:00.0");
  EXPECT_EQ(one.Read(kRingStatus), kOnes);  // who had it has lost it
  one.Open();
  EXPECT_EQ(one.Read(kRingStatus), 0u);

  one.Write(kDoorbell, 1);
  one.Write(kDoorbell, 2);
  one.fake->device->Raise(2);
  EXPECT_EQ(one.Await(milliseconds(10)).code(), StatusCode::kTimeout);
  EXPECT_FALSE(one.function->is_present());
  one.bus->WaitForChange(one.bus->generation(), one.clock.Now() + milliseconds(1000));
  one.Open();
  EXPECT_FALSE(one.function->is_present());  // once more
  one.bus->WaitForChange(one.bus->generation(), one.clock.Now() + milliseconds(1000));
  one.Open();
  EXPECT_TRUE(one.function->is_present());

  EXPECT_EQ(one.Read(kScratch), kOnes);
  EXPECT_FALSE(one.bus->WaitForChange(one.bus->generation(), one.clock.Now() + milliseconds(9999)));
  EXPECT_TRUE(one.bus->List()->empty());
}

TEST(FaultyPcieBus, MappingsGoOutOfReachAndComeBackForWhoMapsAnew) {
  OneFunction one("write 1 unmap 2\nwrite 2 unmap");
  const auto map = [&] { return *one.function->Allocate(64, DmaDirection::kBoth); };
  auto first = map(), second = map();
  std::vector<uint8_t> callers(64);
  auto third = *one.function->Map(callers, DmaDirection::kBoth);
  const auto reaches = [&](const DmaMapping& mapping) {
    return one.fake->device->Store(mapping.iova(), std::vector<uint8_t>(64, 7));
  };
  EXPECT_TRUE(reaches(*first) && reaches(*second) && reaches(*third));
  one.Write(kDoorbell, 1);
  EXPECT_TRUE(reaches(*first) && reaches(*third));
  EXPECT_FALSE(reaches(*second));
  EXPECT_EQ(second->bytes()[63], 7);  // but for the host it stays
  one.Write(kDoorbell, 2);
  EXPECT_FALSE(reaches(*first) || reaches(*second) || reaches(*third));
  second = map();
  EXPECT_TRUE(reaches(*second));
  EXPECT_EQ(second->bytes()[63], 7);
}

TEST(FaultyPcieBus, ResetsAndOpeningGoWrong) {
  OneFunction one("reset 1 drop\nreset 2 delay 20ms\nopen 2 unplug 10ms");
  EXPECT_EQ(one.function->Reset(one.clock.Now() + milliseconds(5)).code(), StatusCode::kTimeout);
  EXPECT_EQ(one.function->Reset(one.clock.Now() + milliseconds(5)).code(), StatusCode::kTimeout);
  EXPECT_TRUE(one.function->Reset(one.clock.Now() + milliseconds(5)).ok());
  const auto devices = one.bus->List();
  EXPECT_EQ(one.bus->Open(devices->front()).code(), StatusCode::kDeviceLost);
  one.bus->WaitForChange(one.bus->generation(), one.clock.Now() + milliseconds(1000));
  EXPECT_TRUE(one.bus->Open(devices->front()).ok());
}

// In real time, as on a computer.
TEST(FaultyPcieBus, AWaitForWhatIsGoneIsCancelled) {
  auto fake = std::make_shared<FakePcieBus>();
  FaultyPcieBus bus(fake, *ParseFaultScript("write 1 unplug never"), {});
  const auto function = *bus.Open(bus.List()->front());
  EXPECT_TRUE(function->Write32(0, kDoorbell, 1).ok());
  std::thread canceller([&] { function->Cancel(); });
  EXPECT_EQ(function->AwaitInterrupts(1, Clock::now() + std::chrono::minutes(10)).code(),
            StatusCode::kCancelled);
  canceller.join();
}

// A device whose waits bring nothing in time, so many in a hundred.
class SluggishPcieBus : public PcieBus {
 public:
  SluggishPcieBus(std::shared_ptr<PcieBus> inner, int percent)
      : inner_(std::move(inner)), percent_(percent) {}
  Result<std::vector<PcieDeviceInfo>> List() override { return inner_->List(); }
  Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo& device) override {
    ATOLL_ASSIGN_OR_RETURN(auto function, inner_->Open(device));
    return std::unique_ptr<PcieFunction>(
        std::make_unique<Function>(std::move(function), &rng_, percent_));
  }
  uint64_t generation() override { return inner_->generation(); }
  bool WaitForChange(uint64_t seen, Deadline deadline) override {
    return inner_->WaitForChange(seen, deadline);
  }

 private:
  class Function : public ForwardingFunction {
   public:
    Function(std::unique_ptr<PcieFunction> inner, Rng* rng, int percent)
        : ForwardingFunction(std::move(inner)), rng_(rng), percent_(percent) {}
    Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override {
      if (rng_->Int(0, 99) < percent_) return Timeout("not yet");
      return inner().AwaitInterrupts(vectors, deadline);
    }

   private:
    Rng* const rng_;
    const int percent_;
  };
  const std::shared_ptr<PcieBus> inner_;
  const int percent_;
  Rng rng_{1};
};

// What is hit, and so what becomes of it, does not depend on how often the host had to wait.
TEST(FaultyPcieBus, HitsTheSameCallsOfASlowDevice) {
  int failures = 0;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(std::max(TestCount(8), 8)); ++seed) {
    std::vector<std::string> ends;
    for (const int percent : {0, 10, 30}) {
      OnePcieDevice one("", OnDeviceLoss::kFallback, [&](ShakyPcieDevice* shaky) {
        shaky->plan = *ReadFaultPlan(Format("seed:%d:1/15", static_cast<int>(seed)));
        shaky->wrap = [percent](std::shared_ptr<PcieBus> bus) {
          return std::make_shared<SluggishPcieBus>(std::move(bus), percent);
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

// Every fault at every place of a session: each request completes, on the device itself.
TEST(FaultyPcieBus, EveryFaultIsOvercome) {
  const struct {
    const char* where;
    std::vector<const char*> whats;
  } kFaults[] = {
      {"write",
       {"drop", "delay 30ms", "repeat", "unmap", "unmap 1", "unmap 2", "unmap 3", "unplug 30ms",
        "unplug 30ms moved", "unplug 30ms twice"}},
      {"vector", {"drop", "delay 30ms", "repeat", "corrupt", "unplug 30ms", "unplug 30ms moved"}},
      {"read", {"drop", "delay 30ms", "unplug 30ms"}},
      {"reset", {"drop", "delay 30ms", "unplug 30ms"}},
      {"open", {"delay 30ms", "unplug 30ms"}},
  };
  int happened = 0;
  for (const auto& [where, whats] : kFaults) {
    for (const char* const what : whats) {
      for (int number = 1; number <= 9; ++number) {
        const std::string script = Format("%s %d %s\n", where, number, what);
        OnePcieDevice one(script, OnDeviceLoss::kReplay,
                          [](ShakyPcieDevice* shaky) { shaky->has_fallback = false; });
        for (int i = 0; i < 3; ++i) {
          const Status status = one.Run();
          EXPECT_TRUE(status.ok()) << script << status.message();
          EXPECT_EQ(one.output, (std::vector<uint8_t>{2, 3, 4, 5})) << script;
        }
        EXPECT_EQ(one.device->health().losses, 0u) << script;
        happened += one.shaky.bus->faults() > 0;
      }
    }
  }
  EXPECT_GT(happened, 150);
}

}  // namespace
}  // namespace atollrt
