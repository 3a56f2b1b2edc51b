// SPDX-License-Identifier: Apache-2.0
//
// Partitioned models on the emulated device: whatever the partitioner and the compiler decide, the
// bytes are those of the CPU.
#include "delegate/delegate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delegate/compiler.h"
#include "driver/device_profile.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/usb_device.h"
#include "runtime/interpreter.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

// An emulated device with as much memory as a test wants.
std::unique_ptr<DeviceDelegate> DelegateWith(uint64_t memory_bytes) {
  CoreOptions core;
  core.profile = DeviceProfiles()[0];
  core.profile.memory_bytes = memory_bytes;
  core.features = *DetectCpuFeatures();
  core.threads = 1;
  auto transport = EmulatedTransport::Create(core);
  EXPECT_TRUE(transport.ok()) << transport.status().message();
  auto device = UsbDevice::Open(*std::move(transport), {.name = "emu"});
  EXPECT_TRUE(device.ok()) << device.status().message();
  return std::make_unique<DeviceDelegate>(*std::move(device));
}

std::unique_ptr<Interpreter> Create(std::shared_ptr<const Model> model, Delegate* delegate) {
  auto interpreter = Interpreter::Create(std::move(model), {.threads = 1, .delegate = delegate});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  return interpreter.ok() ? *std::move(interpreter) : nullptr;
}

std::vector<Bytes> RunOn(Interpreter* interpreter, uint64_t seed) {
  Rng rng(seed);
  for (const int32_t input : interpreter->graph().inputs) {
    rng.Fill(interpreter->TensorBytes(input));
  }
  const Status status = interpreter->Invoke();
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<Bytes> outputs;
  for (const int32_t output : interpreter->graph().outputs) {
    const std::span<const uint8_t> bytes = interpreter->ConstTensorBytes(output);
    outputs.emplace_back(bytes.begin(), bytes.end());
  }
  return outputs;
}

int32_t FunctionOfOneByte(ModelBuilder& m, int64_t which, int32_t x) {
  const Shape shape = m.tensor(x).shape;
  switch (which) {
    case 0:
      return m.Node(OpType::kEXP, {x}, shape);
    case 1:
      return m.Node(OpType::kHARD_SWISH, {x}, shape);
    case 2:
      return m.Node(OpType::kLEAKY_RELU, {x}, shape, LeakyReluOptions{.alpha = -0.3f});
    default:
      return m.Relu(x);
  }
}

// Runs of device operators between islands that only the CPU runs (SOFTMAX), on tensors of
// [1, 8, 8, 12]. Some inner tensors are outputs.
ModelBuilder RandomModel(Rng& rng) {
  ModelBuilder m(rng.Next());
  const int32_t a = m.Input({1, 8, 8, 12});
  std::vector<int32_t> tensors{a, m.Input({1, 8, 8, 12})};
  const auto pick = [&] {
    const int64_t count = static_cast<int64_t>(tensors.size());
    return tensors[static_cast<size_t>(count - rng.Int(1, rng.OneIn(3) ? count : 2))];
  };
  const int64_t nodes = rng.Int(1, 16);
  for (int64_t i = 0; i < nodes; ++i) {
    const int32_t x = pick();
    switch (rng.Int(0, 11)) {
      case 0:
        tensors.push_back(m.Softmax(x));
        break;
      case 1:
        tensors.push_back(m.Logistic(x));
        break;
      case 2:
        tensors.push_back(FunctionOfOneByte(m, rng.Int(0, 3), x));
        break;
      case 3:
        tensors.push_back(m.AveragePool(m.Conv2D(x, {.channels = 12}),
                                        {.size = 3, .stride = 1, .padding = Padding::kSame}));
        break;
      case 4: {
        const int32_t y = m.Conv2D(x, {.channels = 12});
        const int32_t wide = m.Concatenation({y, m.Conv2D(pick(), {.channels = 6})}, 3);
        tensors.push_back(m.Conv2D(wide, {.channels = 12}));
        break;
      }
      case 5: {
        const int32_t y = m.Conv2D(m.Pad(x, {0, 0, 1, 1, 2, 0, 0, 1}),
                                   {.channels = 12, .kernel = 3, .padding = Padding::kValid});
        const int32_t tall = m.Concatenation({y, m.Relu(pick())}, 1);
        tensors.push_back(m.Conv2D(m.Reshape(tall, {1, 8, 8, 24}), {.channels = 12}));
        break;
      }
      case 6:
        tensors.push_back(m.Reshape(m.FullyConnected(m.Reshape(x, {64, 12}), 12), {1, 8, 8, 12}));
        break;
      case 7:
      case 8:
      case 9:
        tensors.push_back(m.Add(x, pick()));
        break;
      default:
        tensors.push_back(rng.OneIn(2) ? m.DepthwiseConv2D(x, {.kernel = 3})
                                       : m.Conv2D(x, {.channels = 12, .kernel = 3}));
        break;
    }
    if (rng.OneIn(6)) m.Output(tensors.back());
  }
  m.Output(tensors.back());
  return m;
}

TEST(DeviceDelegate, GivesTheCpusBytesOnRandomModels) {
  Rng seeds(TestSeed(13));
  const std::unique_ptr<DeviceDelegate> roomy = DelegateWith(8 << 20);
  const std::unique_ptr<DeviceDelegate> tight = DelegateWith(8 << 10);
  int on_device = 0;
  int streamed = 0;
  int refused_for_space = 0;
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = seeds.Next();
    SCOPED_TRACE("model of seed " + std::to_string(seed));
    Rng rng(seed);
    const std::shared_ptr<const Model> model = RandomModel(rng).Load();
    const std::vector<Bytes> want = RunOn(Create(model, nullptr).get(), seed);
    for (DeviceDelegate* delegate : {roomy.get(), tight.get()}) {
      const std::unique_ptr<Interpreter> interpreter = Create(model, delegate);
      ASSERT_NE(interpreter, nullptr);
      EXPECT_EQ(RunOn(interpreter.get(), seed), want);
      EXPECT_EQ(RunOn(interpreter.get(), seed), want) << "second run";
      on_device += interpreter->partitions().empty() ? 0 : 1;
      for (const Partition& partition : interpreter->partitions()) {
        streamed += partition.report.streamed_parameter_bytes > 0 ? 1 : 0;
      }
      for (const NodePlacement& placement : interpreter->placements()) {
        EXPECT_EQ(placement.reason.empty(), placement.partition >= 0);
        refused_for_space += placement.reason.find("on-chip memory at once") != std::string::npos;
      }
    }
  }
  // The models must exercise what this test is about.
  EXPECT_GT(on_device, 200);
  EXPECT_GT(streamed, 10);
  EXPECT_GT(refused_for_space, 0);
}

// One operator that moves [1, 8, 8, 12], between convolutions so that it is worth the device's
// while; the result is [1, 8, 8, 12] again.
int32_t RandomMove(ModelBuilder& m, Rng& rng, int32_t x) {
  const auto conv = [&m](int32_t tensor) { return m.Conv2D(tensor, {.channels = 12}); };
  const auto flat_to_image = [&m](int32_t tensor) { return m.Reshape(tensor, {1, 8, 8, 12}); };
  const auto two_parts = [&m](int32_t first, const Shape& shape) {
    const int32_t second = m.Activation(shape);
    m.graph().nodes.back().outputs.push_back(second);
    return m.Add(second, first);
  };
  switch (rng.Int(0, 9)) {
    case 0:
      return conv(m.Node(OpType::kTRANSPOSE, {x, m.Integers({4}, {0, 2, 1, 3})}, {1, 8, 8, 12}));
    case 1:
      return conv(flat_to_image(
          m.Node(OpType::kTRANSPOSE, {x, m.Integers({4}, {3, 0, 2, 1})}, {12, 1, 8, 8})));
    case 2: {
      const int32_t part =
          m.Node(OpType::kSLICE, {x, m.Integers({4}, {0, 1, 0, 4}), m.Integers({4}, {1, 4, 8, 6})},
                 {1, 4, 8, 6});
      return conv(m.Node(OpType::kTILE, {part, m.Integers({4}, {1, 2, 1, 2})}, {1, 8, 8, 12}));
    }
    case 3: {
      const int32_t even = m.Node(
          OpType::kSTRIDED_SLICE,
          {x, m.Integers({3}, {0, 0, 1}), m.Integers({3}, {1, 8, 8}), m.Integers({3}, {1, 1, 2})},
          {1, 8, 4, 12}, StridedSliceOptions{});
      return conv(m.Concatenation({even, even}, 2));
    }
    case 4: {
      const int32_t deep =
          m.Node(OpType::kSPACE_TO_DEPTH, {x}, {1, 4, 4, 48}, BlockOptions{.block_size = 2});
      const int32_t y = m.Conv2D(deep, {.channels = 48});
      return m.Node(OpType::kDEPTH_TO_SPACE, {y}, {1, 8, 8, 12}, BlockOptions{.block_size = 2});
    }
    case 5: {
      const int32_t half = m.Node(OpType::kSPLIT, {m.Integers({}, {3}), x}, {1, 8, 8, 6},
                                  SplitOptions{.num_splits = 2});
      return conv(two_parts(half, {1, 8, 8, 6}));
    }
    case 6: {
      const int32_t half =
          m.Node(OpType::kSPLIT_V, {x, m.Integers({2}, {4, -1}), m.Integers({}, {-3})},
                 {1, 4, 8, 12}, SplitOptions{.num_splits = 2});
      const int32_t sum = two_parts(half, {1, 4, 8, 12});
      return conv(m.Concatenation({sum, sum}, 1));
    }
    case 7: {
      const int32_t pair =
          m.Node(OpType::kPACK, {x, conv(x)}, {1, 8, 2, 8, 12}, AxisOptions{.axis = 2, .count = 2});
      const int32_t first =
          m.Node(OpType::kUNPACK, {pair}, {1, 8, 8, 12}, AxisOptions{.axis = 2, .count = 2});
      return two_parts(first, {1, 8, 8, 12});
    }
    case 8: {
      const int32_t value = m.Constant(DataType::kInt8, {}, {7});
      m.tensor(value).quantization = m.tensor(x).quantization;
      const int32_t paddings = m.Integers({4, 2}, {0, 0, 1, 1, 1, 1, 0, 0});
      const int32_t wide = m.Node(OpType::kPADV2, {x, paddings, value}, {1, 10, 10, 12});
      return m.Conv2D(wide, {.channels = 12, .kernel = 3, .padding = Padding::kValid});
    }
    default:
      return conv(
          flat_to_image(m.Node(OpType::kEXPAND_DIMS, {x, m.Integers({}, {1})}, {1, 1, 8, 8, 12})));
  }
}

TEST(DeviceDelegate, MovesBytesAsTheCpuDoes) {
  Rng seeds(TestSeed(17));
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  int moves = 0;
  int moves_on_device = 0;
  for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = seeds.Next();
    SCOPED_TRACE("model of seed " + std::to_string(seed));
    Rng rng(seed);
    ModelBuilder m(seed);
    int32_t x = m.Conv2D(m.Input({1, 8, 8, 12}), {.channels = 12});
    for (int k = 0; k < 4; ++k) x = RandomMove(m, rng, x);
    m.Output(x);
    const std::shared_ptr<const Model> model = m.Load();
    ASSERT_NE(model, nullptr);
    const std::vector<Bytes> want = RunOn(Create(model, nullptr).get(), seed);
    const std::unique_ptr<Interpreter> interpreter = Create(model, delegate.get());
    ASSERT_NE(interpreter, nullptr);
    EXPECT_EQ(RunOn(interpreter.get(), seed), want);
    for (size_t node = 0; node < model->graph().nodes.size(); ++node) {
      if (!IsMove(model->graph().nodes[node].type)) continue;
      ++moves;
      moves_on_device += interpreter->placements()[node].reason.empty() ? 1 : 0;
    }
  }
  EXPECT_GT(moves, 200);
  EXPECT_EQ(moves_on_device, moves);
}

TEST(DeviceDelegate, EstimatesTheCyclesThatTheDeviceThenCounts) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 16, 16, 3}), {.channels = 16, .kernel = 3, .stride = 2});
  m.Output(m.FullyConnected(m.AveragePool(m.DepthwiseConv2D(x, {.kernel = 3}), {}), 10));
  const std::unique_ptr<Interpreter> interpreter = Create(m.Load(), delegate.get());
  RunOn(interpreter.get(), 1);
  RunOn(interpreter.get(), 1);
  ASSERT_EQ(interpreter->partitions().size(), 1u);
  EXPECT_EQ(static_cast<int64_t>(interpreter->last_usage().cycles),
            interpreter->partitions()[0].report.estimated_cycles);
}

TEST(DeviceDelegate, SharesOneDeviceAmongInterpreters) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(24 << 10);
  ModelBuilder first(1);
  first.Output(first.FullyConnected(first.Input({1, 128}), 128));
  ModelBuilder second(2);
  second.Output(second.FullyConnected(second.Input({1, 128}), 128));
  const std::unique_ptr<Interpreter> a = Create(first.Load(), delegate.get());
  const std::unique_ptr<Interpreter> b = Create(second.Load(), delegate.get());
  const std::vector<Bytes> want_a = RunOn(Create(first.Load(), nullptr).get(), 1);
  const std::vector<Bytes> want_b = RunOn(Create(second.Load(), nullptr).get(), 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(RunOn(a.get(), 1), want_a);
    EXPECT_EQ(RunOn(b.get(), 1), want_b);
  }
}

TEST(DeviceDelegate, RefusesAFaultyModelAsTheCpuDoes) {
  ModelBuilder m;
  const int32_t y = m.Conv2D(m.Input({1, 4, 4, 2}), {.channels = 2});
  m.tensor(y).quantization = {};
  m.Output(y);
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  for (Delegate* each : {static_cast<Delegate*>(delegate.get()), static_cast<Delegate*>(nullptr)}) {
    const auto interpreter = Interpreter::Create(m.Load(), {.threads = 1, .delegate = each});
    EXPECT_EQ(interpreter.status().code(), StatusCode::kCorruptModel);
    EXPECT_THAT(interpreter.status().message(),
                HasSubstr("node 0 (CONV_2D) 't3': output 't3' has 0 scales"));
  }
}

}  // namespace
}  // namespace atollrt
