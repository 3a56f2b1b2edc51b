// SPDX-License-Identifier: Apache-2.0
//
// A device and the emulated chip with a bad cable between them, and with many threads. What
// must hold: each request completes exactly once, with the right bytes if it says so; nothing
// hangs; a lost device comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "driver/emulator/emulated_transport.h"
#include "tests/support/open_atoll1.h"
#include "tests/support/rng.h"
#include "tests/support/shaky_device.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

std::unique_ptr<EmulatedTransport> MakeEmulator(uint64_t memory_bytes) {
  CoreOptions options;
  options.profile = *FindDeviceProfile("usb3");
  options.profile.memory_bytes = memory_bytes;
  auto transport = EmulatedTransport::Create(options);
  EXPECT_TRUE(transport.ok());
  return *std::move(transport);
}

// Executables that do not all fit into 32 KiB together, resident and streamed, small and large.
std::vector<Executable> MakeExecutables() {
  return {
      MakeTableExecutable({.name = "a", .offset = 1}),
      MakeTableExecutable({.name = "b", .count = 100, .offset = 2, .extra_parameters = 9000}),
      MakeTableExecutable({.name = "c", .count = 6000, .offset = 3}),
      MakeTableExecutable({.name = "d",
                           .count = 5000,
                           .offset = 4,
                           .extra_parameters = 5000,
                           .table = TableExecutableOptions::kStreamed}),
  };
}

// One request of executable number `which`, and what it should give.
struct Trial {
  size_t which = 0;
  std::vector<uint8_t> input, output, expected;
  RequestId id = 0;
};

Trial MakeTrial(Rng& rng, const std::vector<Executable>& executables) {
  Trial trial;
  trial.which = static_cast<size_t>(rng.Int(0, static_cast<int64_t>(executables.size()) - 1));
  const size_t count = executables[trial.which].inputs[0].bytes;
  trial.input.resize(count);
  rng.Fill(trial.input);
  trial.output.resize(count);
  for (const uint8_t byte : trial.input) {
    trial.expected.push_back(static_cast<uint8_t>(byte + trial.which + 1));
  }
  return trial;
}

// A cable, and a slot.
template <typename Link>
class FaultsOn : public ::testing::Test {};
using Links = ::testing::Types<ShakyUsb, ShakyPcie>;
struct LinkNames {
  template <typename Link>
  static std::string GetName(int) {
    return std::is_same_v<Link, ShakyUsb> ? "Usb" : "Pcie";
  }
};
TYPED_TEST_SUITE(FaultsOn, Links, LinkNames);

// Several under way at once, on a device that has no room for all executables.
TYPED_TEST(FaultsOn, EachRequestCompletesOnceAndRightOverABadCable) {
  Rng rng(TestSeed(1));
  ShakyDeviceOn<TypeParam> shaky;
  shaky.memory_bytes = 32 << 10;
  shaky.plan.random = true;
  shaky.plan.seed = rng.Next();
  shaky.plan.probability = 1.0 / 400;
  const std::unique_ptr<Device> device = shaky.Open();
  const std::vector<Executable> executables = MakeExecutables();
  std::vector<ExecutableId> ids;
  for (const Executable& executable : executables) {
    const auto id = device->Load(std::make_shared<Executable>(executable));
    ASSERT_TRUE(id.ok()) << id.status().message();
    ids.push_back(*id);
  }
  // Never fewer: something has to go wrong.
  const int rounds = std::max(TestCount(1000), 1000);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Trial> trials;
    for (int64_t i = rng.Int(1, 4); i > 0; --i) trials.push_back(MakeTrial(rng, executables));
    for (Trial& trial : trials) {
      const auto id = device->Submit({.executable = ids[trial.which],
                                      .inputs = {trial.input},
                                      .outputs = {trial.output},
                                      .timeout = std::chrono::milliseconds(200)});
      ASSERT_TRUE(id.ok()) << id.status().message();
      trial.id = *id;
    }
    for (const Trial& trial : trials) {
      const Status status = device->Wait(trial.id, nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(trial.output, trial.expected);
      EXPECT_EQ(device->Wait(trial.id, nullptr).code(), StatusCode::kInvalidArgument);
    }
  }
  EXPECT_GT(shaky.bus->faults(), 0u);
  EXPECT_GT(device->health().failures, 0u);
}

TEST(DeviceFaults, ThreadsShareADevice) {
  const auto opened = OpenAtoll1(MakeEmulator(32 << 10), {.name = "shared"});
  ASSERT_TRUE(opened.ok());
  Device& device = **opened;
  const std::vector<Executable> executables = MakeExecutables();
  std::vector<ExecutableId> ids;
  for (const Executable& executable : executables) {
    ids.push_back(*device.Load(std::make_shared<Executable>(executable)));
  }
  const uint64_t seed = TestSeed(2);
  std::atomic<int> completed{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(seed + t);
      for (int i = 0; i < 100; ++i) {
        Trial trial = MakeTrial(rng, executables);
        const auto id = device.Submit(
            {.executable = ids[trial.which], .inputs = {trial.input}, .outputs = {trial.output}});
        ASSERT_TRUE(id.ok()) << id.status().message();
        const bool cancelled = rng.OneIn(5);
        if (cancelled) {
          EXPECT_TRUE(device.Cancel(*id).ok());
        }
        const Status status = device.Wait(*id, nullptr);
        ++completed;
        if (status.ok()) {
          ASSERT_EQ(trial.output, trial.expected);
        } else {
          ASSERT_TRUE(cancelled);
          ASSERT_EQ(status.code(), StatusCode::kCancelled) << status.message();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(completed, 400);
}

TYPED_TEST(FaultsOn, LossesInTheMiddleFailRequestsButLoseNone) {
  ShakyDeviceOn<TypeParam> shaky;
  shaky.memory_bytes = 32 << 10;
  shaky.plan = *ReadFaultPlan("seed:3:1/40");
  shaky.on_loss = OnDeviceLoss::kFail;
  const auto opened = shaky.Open();
  Device& device = *opened;
  const std::vector<Executable> executables = MakeExecutables();
  std::vector<ExecutableId> ids;
  for (const Executable& executable : executables) {
    ids.push_back(*device.Load(std::make_shared<Executable>(executable)));
  }
  const uint64_t seed = TestSeed(3);
  std::atomic<int> succeeded{0}, failed{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(seed + t);
      for (int i = 0; i < 200; ++i) {
        Trial trial = MakeTrial(rng, executables);
        const auto id = device.Submit(
            {.executable = ids[trial.which], .inputs = {trial.input}, .outputs = {trial.output}});
        const Status status = id.ok() ? device.Wait(*id, nullptr) : id.status();
        if (status.ok()) {
          ASSERT_EQ(trial.output, trial.expected);
          ++succeeded;
        } else {
          ASSERT_TRUE(status.code() == StatusCode::kDeviceLost ||
                      status.code() == StatusCode::kTimeout)
              << status.message();
          ++failed;
          // Meanwhile it may be plugged in again.
          shaky.clock.AdvanceTo(shaky.clock.Now() + std::chrono::milliseconds(100));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(succeeded + failed, 600);
  EXPECT_GT(succeeded, 100);
  EXPECT_GT(failed, 5);
  EXPECT_GT(device.health().reopenings, 0u);
}

// The device finds fault with an operand that ReadExecutable leaves to it.
TEST(DeviceFaults, AMalformedProgramIsNamedAndTheDeviceServesOthers) {
  const auto opened = OpenAtoll1(MakeEmulator(1 << 20), {.name = "emulated"});
  ASSERT_TRUE(opened.ok());
  Device& device = **opened;
  Executable bad = MakeTableExecutable({.name = "bad"});
  std::get<TableInstruction>(bad.inference_program[1]).count = 1u << 30;
  const auto bad_id = device.Load(std::make_shared<Executable>(bad));
  const auto good_id =
      device.Load(std::make_shared<Executable>(MakeTableExecutable({.name = "good"})));
  ASSERT_TRUE(bad_id.ok());
  ASSERT_TRUE(good_id.ok());
  const std::vector<uint8_t> input = {0, 1, 2, 3};
  std::vector<uint8_t> output(4);
  const auto run = [&](ExecutableId id) {
    return device.Wait(*device.Submit({.executable = id, .inputs = {input}, .outputs = {output}}),
                       nullptr);
  };
  EXPECT_TRUE(run(*good_id).ok());
  const Status status = run(*bad_id);
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(status.message(),
              ::testing::HasSubstr("device fault BAD_ADDRESS in instruction 1 (TABLE "));
  EXPECT_THAT(status.message(), ::testing::HasSubstr("count=1073741824"));
  EXPECT_THAT(status.message(), ::testing::HasSubstr("of 'bad'"));
  EXPECT_TRUE(run(*good_id).ok());
  EXPECT_EQ(output, (std::vector<uint8_t>{0x10, 0x11, 0x12, 0x13}));
}

}  // namespace
}  // namespace atollrt
