// SPDX-License-Identifier: Apache-2.0
//
// Models cut into stages, each of which runs on a device of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "delegate/delegate.h"
#include "driver/device/device.h"
#include "tests/support/counting_chip.h"
#include "tests/support/emulated_device.h"
#include "tests/support/model_builder.h"
#include "tests/support/seeded_run.h"
#include "tests/support/shaky_device.h"

namespace atollrt {
namespace {

using ::testing::Each;
using ::testing::Gt;

constexpr int kMostDevices = 4;

// Convolutions, a branch around some of them, and an operator for the CPU in the middle.
std::shared_ptr<const Model> MakeModel() {
  ModelBuilder m;
  int32_t x = m.Input({1, 12, 12, 4});
  for (int i = 0; i < 4; ++i) {
    const int32_t y = m.Conv2D(m.Conv2D(x, {.channels = 8, .kernel = 3}), {.channels = 4});
    x = m.Add(x, y);
    if (i == 1) x = m.LogSoftmax(x);
  }
  m.Output(m.Mean(x, {1, 2}));
  m.Output(m.MaxPool(x, {}));
  return m.Load();
}

// Devices that count their runs, as one.
struct Group {
  std::array<std::atomic<int>, kMostDevices> runs = {};
  std::unique_ptr<DeviceDelegate> delegate;

  void Make(std::vector<std::unique_ptr<Device>> devices) {
    const int32_t stages = static_cast<int32_t>(devices.size());
    auto group = Device::Join(std::move(devices));
    ASSERT_TRUE(group.ok()) << group.status().message();
    delegate = std::make_unique<DeviceDelegate>(*std::move(group),
                                                DeviceDelegate::Options{.stages = stages});
  }
  void Make(int count) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < count; ++i) devices.push_back(CountedDevice(&runs[static_cast<size_t>(i)]));
    Make(std::move(devices));
  }
  std::vector<int> Counts(int devices) const { return {runs.begin(), runs.begin() + devices}; }
};

TEST(Stages, GiveTheBytesOfTheWholeModel) {
  const auto model = MakeModel();
  const auto whole = MakeInterpreter(model, nullptr);
  for (int devices = 1; devices <= kMostDevices; ++devices) {
    SCOPED_TRACE(devices);
    Group group;
    group.Make(devices);
    const auto staged = MakeInterpreter(model, group.delegate.get());
    ASSERT_NE(staged, nullptr);
    EXPECT_GE(staged->partitions().size(), static_cast<size_t>(devices));
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      EXPECT_EQ(RunWithSeed(staged.get(), seed), RunWithSeed(whole.get(), seed));
    }
    // Each partition once in each inference, on the device of its stage.
    EXPECT_THAT(group.Counts(devices), Each(Gt(0)));
    int requests = 0;
    for (const int count : group.Counts(devices)) {
      EXPECT_EQ(count % 3, 0);
      requests += count;
    }
    EXPECT_EQ(requests, static_cast<int>(3 * staged->partitions().size()));
  }
}

TEST(Stages, KeepSeveralInferencesApart) {
  constexpr int kThreads = 3;
  constexpr uint64_t kInferences = 20;
  const auto model = MakeModel();
  Group group;
  group.Make(2);
  const auto whole = MakeInterpreter(model, nullptr);
  std::vector<std::vector<std::vector<uint8_t>>> expected;
  for (uint64_t seed = 0; seed < kThreads * kInferences; ++seed) {
    expected.push_back(RunWithSeed(whole.get(), seed));
  }
  std::vector<std::unique_ptr<Interpreter>> interpreters;
  for (int i = 0; i < kThreads; ++i) {
    interpreters.push_back(MakeInterpreter(model, group.delegate.get()));
    ASSERT_NE(interpreters.back(), nullptr);
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (uint64_t k = 0; k < kInferences; ++k) {
        const uint64_t seed = i * kInferences + k;
        EXPECT_EQ(RunWithSeed(interpreters[i].get(), seed), expected[seed]) << seed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(group.Counts(2), Each(Gt(0)));
}

// The second device goes in the middle of an inference, for a moment or for good.
TEST(Stages, OutliveALostDevice) {
  const auto model = MakeModel();
  const auto whole = MakeInterpreter(model, nullptr);
  for (const char* script : {"in 4 unplug 300ms", "in 4 unplug never"}) {
    SCOPED_TRACE(script);
    ShakyDevice shaky;
    shaky.plan = *ParseFaultScript(script);
    Group group;
    shaky.wrap_chip = [&](std::unique_ptr<Chip> chip) {
      return std::make_unique<CountingChip>(std::move(chip), &group.runs[1]);
    };
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(CountedDevice(&group.runs[0]));
    devices.push_back(shaky.Open());
    group.Make(std::move(devices));
    const auto staged = MakeInterpreter(model, group.delegate.get());
    ASSERT_NE(staged, nullptr);
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      EXPECT_EQ(RunWithSeed(staged.get(), seed), RunWithSeed(whole.get(), seed)) << seed;
    }
    EXPECT_THAT(group.Counts(2), Each(Gt(0)));
    const DeviceHealth health = group.delegate->device().health();
    EXPECT_GT(health.failures, 0u);
    const bool comes_back = std::string(script).find("never") == std::string::npos;
    EXPECT_EQ(health.reopenings > 0, comes_back);
    EXPECT_EQ(health.fallbacks > 0, !comes_back);
  }
}

}  // namespace
}  // namespace atollrt
