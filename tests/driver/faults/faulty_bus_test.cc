// SPDX-License-Identifier: Apache-2.0
#include "driver/faults/faulty_bus.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "driver/atoll1/protocol.h"
#include "tests/support/one_shaky_device.h"
#include "tests/support/rng.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

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
TEST(FaultyBus, HitsTheSameTransfersOfASlowDevice) {
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
