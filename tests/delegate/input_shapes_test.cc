// SPDX-License-Identifier: Apache-2.0
//
// Models with other shapes of inputs than the file has: they are compiled for these, and the device
// gives the CPU's bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delegate/delegate.h"
#include "runtime/interpreter.h"
#include "tests/delegate/emulated_delegate.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

// All outputs for inputs from `seed`, behind their shapes.
std::vector<std::pair<Shape, Bytes>> RunOn(std::shared_ptr<const Model> model, Delegate* delegate,
                                           uint64_t seed) {
  auto interpreter = Interpreter::Create(std::move(model), {.threads = 1, .delegate = delegate});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  if (!interpreter.ok()) return {};
  const Graph& graph = (*interpreter)->graph();
  Rng rng(seed);
  for (const int32_t input : graph.inputs) rng.Fill((*interpreter)->TensorBytes(input));
  const Status status = (*interpreter)->Invoke();
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::pair<Shape, Bytes>> outputs;
  for (const int32_t output : graph.outputs) {
    const std::span<const uint8_t> bytes = (*interpreter)->ConstTensorBytes(output);
    outputs.emplace_back(graph.tensors[output].shape, Bytes(bytes.begin(), bytes.end()));
  }
  return outputs;
}

std::shared_ptr<const Model> Load(const Bytes& file, const std::vector<InputShape>& shapes) {
  auto model = Model::FromBuffer(file, shapes);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *std::move(model) : nullptr;
}

// A fully convolutional network of random layers, with a skip connection and a pyramid's sum.
ModelBuilder FullyConvolutional(Rng& rng) {
  ModelBuilder m(rng.Next());
  const auto channels = [&] { return static_cast<int32_t>(rng.Int(1, 9)); };
  const auto kernel = [&] { return static_cast<int32_t>(rng.Int(1, 4)); };
  int32_t x = m.Input({1, 16, 16, 3});
  for (int64_t layers = rng.Int(1, 4); layers > 0; --layers) {
    switch (rng.Int(0, 4)) {
      case 0:
        x = m.Conv2D(x, {.channels = channels(),
                         .kernel = kernel(),
                         .stride = static_cast<int32_t>(rng.Int(1, 2))});
        break;
      case 1:
        x = m.DepthwiseConv2D(x, {.kernel = kernel()});
        break;
      case 2:
        x = m.MaxPool(x, {.size = 3, .stride = 1, .padding = Padding::kSame});
        break;
      case 3:
        x = m.Pad(x, {0, 0, 1, 2, 0, 1, 0, 0});
        break;
      default:
        x = m.Add(x, m.Conv2D(x, {.channels = m.tensor(x).shape[3], .kernel = kernel()}));
        break;
    }
  }
  m.Output(m.Concatenation({x, m.Relu(m.DepthwiseConv2D(x, {.kernel = 3}))}, 3));
  m.Output(m.Mean(x, {1, 2}));
  return m;
}

TEST(InputShapes, TheDeviceGivesTheCpusBytesAtAnySize) {
  Rng rng(TestSeed(11));
  const auto large = DelegateWith(8 << 20);
  const auto small = DelegateWith(16 << 10);
  for (int i = 0; i < 60; ++i) {
    const Bytes file = FullyConvolutional(rng).Build();
    const Shape shape = {static_cast<int32_t>(rng.Int(1, 2)), static_cast<int32_t>(rng.Int(1, 70)),
                         static_cast<int32_t>(rng.Int(1, 40)), 3};
    const auto model = Load(file, {{.shape = shape}});
    ASSERT_NE(model, nullptr);
    const auto want = RunOn(model, nullptr, 1);
    auto on_device = Interpreter::Create(model, {.threads = 1, .delegate = large.get()});
    ASSERT_TRUE(on_device.ok());
    EXPECT_FALSE((*on_device)->partitions().empty()) << ShapeString(shape);
    EXPECT_EQ(RunOn(model, large.get(), 1), want) << ShapeString(shape);
    EXPECT_EQ(RunOn(model, small.get(), 1), want) << ShapeString(shape);
    // At the size in the file, the option changes nothing.
    const auto stored = RunOn(Load(file, {}), nullptr, 2);
    EXPECT_EQ(RunOn(Load(file, {{.shape = {16, 16}}}), nullptr, 2), stored);
    EXPECT_EQ(RunOn(Load(file, {{.shape = {1, 16, 16, 3}}}), large.get(), 2), stored);
  }
}

TEST(InputShapes, CompiledModelsKeepTheirs) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 3});
  m.tensor(x).name = "image";
  m.Output(m.Relu(m.Conv2D(x, {.channels = 5, .kernel = 3})));
  const Bytes original = m.Build();
  const auto delegate = DelegateWith(1 << 20);
  const auto resized = Load(original, {{.shape = {9, 7}}});
  ASSERT_NE(resized, nullptr);
  const auto compiled = delegate->Compile(*resized);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();

  // It has the shapes that it was compiled with.
  const auto want = RunOn(resized, nullptr, 3);
  for (const std::vector<InputShape>& shapes :
       {std::vector<InputShape>{}, std::vector<InputShape>{{.shape = {1, 9, 7, 3}}}}) {
    const auto model = Load(*compiled, shapes);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->graph().compiled.size(), 1u);
    EXPECT_EQ(RunOn(model, delegate.get(), 3), want);
    EXPECT_EQ(RunOn(model, nullptr, 3), want);
  }
  const Status status =
      Model::FromBuffer(*compiled, std::vector<InputShape>{{.shape = {8, 8}}}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("compiled for input 'image' of shape [1, 9, 7, 3]"),
                                      HasSubstr("[8, 8]"), HasSubstr("original model")));
}

}  // namespace
}  // namespace atollrt
