// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers on the emulated device: what the CPU remembers from one invocation to the next,
// the device remembers, too, and no failure of the device makes it forget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delegate/delegate.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/profiles/device_profile.h"
#include "runtime/interpreter.h"
#include "tests/support/model_builder.h"
#include "tests/support/open_atoll1.h"
#include "tests/support/rng.h"
#include "tests/support/shaky_device.h"

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;

std::unique_ptr<EmulatedTransport> MakeEmulator() {
  CoreOptions core{.profile = DeviceProfiles()[0]};
  core.profile.memory_bytes = 64 << 10;
  auto transport = EmulatedTransport::Create(core);
  EXPECT_TRUE(transport.ok()) << transport.status().message();
  return *std::move(transport);
}

std::unique_ptr<DeviceDelegate> MakeDelegate() {
  auto device = OpenAtoll1(MakeEmulator(), {.name = "emu"});
  EXPECT_TRUE(device.ok()) << device.status().message();
  return std::make_unique<DeviceDelegate>(*std::move(device));
}

std::unique_ptr<Interpreter> Create(std::shared_ptr<const Model> model, Delegate* delegate) {
  auto interpreter = Interpreter::Create(std::move(model), {.threads = 1, .delegate = delegate});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  return interpreter.ok() ? *std::move(interpreter) : nullptr;
}

// One invocation with random input; the output, or what went wrong.
Result<Bytes> Invoke(Interpreter* interpreter, uint64_t seed) {
  Rng rng(seed);
  rng.Fill(interpreter->TensorBytes(interpreter->graph().inputs[0]));
  ATOLL_RETURN_IF_ERROR(interpreter->Invoke());
  const auto output = interpreter->ConstTensorBytes(interpreter->graph().outputs[0]);
  return Bytes(output.begin(), output.end());
}

Bytes MustInvoke(Interpreter* interpreter, uint64_t seed) {
  Result<Bytes> output = Invoke(interpreter, seed);
  EXPECT_TRUE(output.ok()) << output.status().message();
  return output.ok() ? *std::move(output) : Bytes();
}

// Two layers, one behind the other.
std::shared_ptr<const Model> TwoLayers(Rng& rng) {
  ModelBuilder m(rng.Next());
  const bool time_major = rng.OneIn(2);
  const int32_t x = m.Input({rng.Int32(1, 3), rng.Int32(1, 4), rng.Int32(1, 12)});
  const auto layer = [&] {
    return ModelBuilder::Recurrent{.units = rng.Int32(1, 10),
                                   .time_major = time_major,
                                   .cell_clip = rng.OneIn(3) ? 0.7f : 0.0f,
                                   .cell_integer_bits = rng.Int32(0, 6)};
  };
  m.Output(m.Lstm(m.Lstm(x, layer()), layer()));
  return m.Load();
}

TEST(DeviceState, FollowsTheCpuThroughASequenceAndAReset) {
  Rng rng(TestSeed(51));
  const std::unique_ptr<DeviceDelegate> delegate = MakeDelegate();
  int remembered = 0;
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    const std::shared_ptr<const Model> model = TwoLayers(rng);
    ASSERT_NE(model, nullptr);
    const std::unique_ptr<Interpreter> cpu = Create(model, nullptr);
    const std::unique_ptr<Interpreter> device = Create(model, delegate.get());
    ASSERT_EQ(device->partitions().size(), 1u);
    EXPECT_EQ(device->partitions()[0].nodes.size(), 2u);
    const Bytes first = MustInvoke(cpu.get(), 1);
    EXPECT_EQ(MustInvoke(device.get(), 1), first);
    for (int i = 0; i < 4; ++i) {
      const Bytes want = MustInvoke(cpu.get(), 1);
      EXPECT_EQ(MustInvoke(device.get(), 1), want) << "round " << round << ", invocation " << i;
      remembered += want != first;
    }
    cpu->ResetVariables();
    device->ResetVariables();
    EXPECT_EQ(MustInvoke(cpu.get(), 1), first);
    EXPECT_EQ(MustInvoke(device.get(), 1), first);
  }
  EXPECT_GT(remembered, 40);  // or the state did not matter
}

// A RESHAPE of the state before a layer that changes it, read behind the layer.
TEST(DeviceState, IsReadWhereTheNodeStands) {
  const std::unique_ptr<DeviceDelegate> delegate = MakeDelegate();
  ModelBuilder m;
  const int32_t y = m.Lstm(m.Input({1, 2, 3}), {.units = 4});
  const int32_t state = m.graph().nodes[0].inputs[18];
  const int32_t before = m.Reshape(state, {1, 1, 4});
  std::swap(m.graph().nodes[0], m.graph().nodes[1]);
  const int32_t read = m.Relu(before);
  for (const int32_t tensor : {before, read}) {
    m.tensor(tensor).quantization = m.tensor(state).quantization;
  }
  m.Output(m.Concatenation({read, y}, 1));
  m.tensor(m.graph().outputs[0]).quantization = m.tensor(state).quantization;
  const std::shared_ptr<const Model> model = m.Load();
  const std::unique_ptr<Interpreter> cpu = Create(model, nullptr);
  const std::unique_ptr<Interpreter> device = Create(model, delegate.get());
  ASSERT_GE(device->partitions().size(), 1u);
  for (uint64_t seed = 1; seed < 5; ++seed) {
    const Bytes want = MustInvoke(cpu.get(), seed);
    EXPECT_EQ(MustInvoke(device.get(), seed), want) << seed;
  }
}

TEST(DeviceState, BelongsToOneInterpreter) {
  Rng rng(TestSeed(52));
  const std::unique_ptr<DeviceDelegate> delegate = MakeDelegate();
  const std::shared_ptr<const Model> model = TwoLayers(rng);
  const std::unique_ptr<Interpreter> cpu = Create(model, nullptr);
  const std::unique_ptr<Interpreter> a = Create(model, delegate.get());
  const std::unique_ptr<Interpreter> b = Create(model, delegate.get());
  for (uint64_t seed = 1; seed < 5; ++seed) {
    const Bytes want = MustInvoke(cpu.get(), seed);
    EXPECT_EQ(MustInvoke(a.get(), seed), want);
    EXPECT_EQ(MustInvoke(b.get(), seed), want);
  }
}

// Every invocation is tried until it succeeds. Failures hit everywhere, also between the parts of
// the state on their way back.
TEST(DeviceState, SurvivesADeviceThatFails) {
  Rng rng(TestSeed(53));
  ShakyDevice shaky;
  shaky.memory_bytes = 64 << 10;
  shaky.plan.random = true;
  shaky.plan.seed = rng.Next();
  shaky.plan.probability = 1.0 / 25;
  shaky.on_loss = OnDeviceLoss::kFail;
  DeviceDelegate delegate(shaky.Open());
  const std::shared_ptr<const Model> model = TwoLayers(rng);
  const std::unique_ptr<Interpreter> cpu = Create(model, nullptr);
  const std::unique_ptr<Interpreter> device = Create(model, &delegate);
  int failures = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Bytes want = MustInvoke(cpu.get(), seed);
    for (int attempt = 0;; ++attempt) {
      ASSERT_LT(attempt, 100);
      const Result<Bytes> got = Invoke(device.get(), seed);
      if (got.ok()) {
        ASSERT_EQ(*got, want) << "invocation " << seed << ", attempt " << attempt;
        break;
      }
      ++failures;
      // Meanwhile it may be plugged in again.
      shaky.clock.AdvanceTo(shaky.clock.Now() + std::chrono::milliseconds(100));
    }
  }
  std::printf("%d faults injected, %d invocations failed\n", static_cast<int>(shaky.bus->faults()),
              failures);
  EXPECT_GT(failures, 5);
}

}  // namespace
}  // namespace atollrt
