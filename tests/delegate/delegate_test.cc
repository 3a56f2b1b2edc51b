// SPDX-License-Identifier: Apache-2.0
//
// Partitioned models on the emulated device. That the bytes are those of the CPU, whatever the
// partitioner and the compiler decide, is the subject of tests/integration/random_graphs_test.cc.
#include "delegate/delegate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delegate/lowering.h"
#include "runtime/interpreter.h"
#include "tests/support/emulated_device.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

std::unique_ptr<DeviceDelegate> DelegateWith(uint64_t memory_bytes) {
  return std::make_unique<DeviceDelegate>(EmulatedDevice{.memory_bytes = memory_bytes}.Open());
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
      if (FindDeviceOp(model->graph().nodes[node].type)->lower != LowerMove) continue;
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
                HasSubstr("node 0 (CONV_2D): output 't3' has 0 scales"));
  }
}

}  // namespace
}  // namespace atollrt
