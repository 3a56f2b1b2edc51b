// SPDX-License-Identifier: Apache-2.0
//
// The bundled model over a bad cable, and in a bad slot: random faults in about one of 400 calls,
// two interpreters on two threads. Each request completes exactly once, with the right bytes, in
// bounded time; the clock is one that never waits. ATOLL_TEST_SCALE=50 makes it 100,000 requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "delegate/delegate.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "tests/support/rng.h"
#include "tests/support/shaky_device.h"

namespace atollrt {
namespace {

constexpr int kThreads = 2;
constexpr int kPictures = 16;

std::shared_ptr<const Model> FashionModel() {
  auto model = Model::FromFile(ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *std::move(model) : nullptr;
}

using Bytes = std::vector<uint8_t>;
struct Example {
  Bytes input, output;
};

// Random inputs and what the CPU makes of them.
std::vector<Example> MakeExamples(const std::shared_ptr<const Model>& model, Rng& rng) {
  auto interpreter = Interpreter::Create(model, {.threads = 1});
  EXPECT_TRUE(interpreter.ok());
  const Graph& graph = (*interpreter)->graph();
  std::vector<Example> examples(kPictures);
  for (Example& example : examples) {
    const std::span<uint8_t> input = (*interpreter)->TensorBytes(graph.inputs[0]);
    rng.Fill(input);
    example.input.assign(input.begin(), input.end());
    EXPECT_TRUE((*interpreter)->Invoke().ok());
    const std::span<uint8_t> output = (*interpreter)->TensorBytes(graph.outputs[0]);
    example.output.assign(output.begin(), output.end());
  }
  return examples;
}

template <typename Link>
void RunOverBadCable(OnDeviceLoss on_loss, int requests) {
  Rng rng(TestSeed(11));
  const std::shared_ptr<const Model> model = FashionModel();
  ASSERT_NE(model, nullptr);
  const std::vector<Example> examples = MakeExamples(model, rng);

  ShakyDeviceOn<Link> shaky;
  shaky.plan.random = true;
  shaky.plan.seed = rng.Next();
  shaky.plan.probability = 1.0 / 400;
  shaky.on_loss = on_loss;
  std::unique_ptr<Device> device = shaky.Open();
  Device* const recovering = device.get();
  DeviceDelegate delegate(std::move(device));

  std::atomic<int> completed{0}, right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto interpreter = Interpreter::Create(model, {.threads = 1, .delegate = &delegate});
      ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
      const Graph& graph = (*interpreter)->graph();
      const std::span<uint8_t> input = (*interpreter)->TensorBytes(graph.inputs[0]);
      const std::span<const uint8_t> output = (*interpreter)->TensorBytes(graph.outputs[0]);
      for (int i = t; i < requests; i += kThreads) {
        const Example& example = examples[static_cast<size_t>(i) % examples.size()];
        std::copy(example.input.begin(), example.input.end(), input.begin());
        const Status status = (*interpreter)->Invoke();
        ASSERT_TRUE(status.ok()) << "request " << i << ": " << status.message();
        ++completed;
        right += std::equal(output.begin(), output.end(), example.output.begin());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(completed, requests);
  EXPECT_EQ(right, requests);
  const DeviceHealth health = recovering->health();
  std::printf(
      "%d requests, %llu faults: %llu failures, %llu resets, %llu reopenings, %llu losses, "
      "%llu replays, %llu on the stand-in\n",
      requests, static_cast<unsigned long long>(shaky.bus->faults()),
      static_cast<unsigned long long>(health.failures),
      static_cast<unsigned long long>(health.resets),
      static_cast<unsigned long long>(health.reopenings),
      static_cast<unsigned long long>(health.losses),
      static_cast<unsigned long long>(health.replays),
      static_cast<unsigned long long>(health.fallbacks));
  if (requests >= 1000) {  // about one in 120 meets a fault
    EXPECT_GT(shaky.bus->faults(), 0u);
  }
  EXPECT_GE(health.replays, health.failures - health.losses);
}

TEST(BadCable, EachRequestCompletesOnceAndRightWithAStandIn) {
  RunOverBadCable<ShakyUsb>(OnDeviceLoss::kFallback, TestCount(2000));
}

TEST(BadCable, EachRequestCompletesOnceAndRightByReplayAlone) {
  RunOverBadCable<ShakyUsb>(OnDeviceLoss::kReplay, TestCount(1000));
}

TEST(BadSlot, EachRequestCompletesOnceAndRightWithAStandIn) {
  RunOverBadCable<ShakyPcie>(OnDeviceLoss::kFallback, TestCount(2000));
}

TEST(BadSlot, EachRequestCompletesOnceAndRightByReplayAlone) {
  RunOverBadCable<ShakyPcie>(OnDeviceLoss::kReplay, TestCount(1000));
}

}  // namespace
}  // namespace atollrt
