// SPDX-License-Identifier: Apache-2.0
//
// Pictures whose activations exceed the memory of the device: a pose network's backbone at
// 721 x 1281 and residual blocks at 513 x 513. They run on the device as one partition, in bands of
// rows, and give the CPU's bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/interpreter.h"
#include "runtime/plan/partition_report.h"
#include "tests/support/model_builder.h"
#include "tests/support/seeded_run.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

void ExpectRunsInBands(const ModelBuilder& m) {
  const std::shared_ptr<const Model> model = m.Load();
  ASSERT_NE(model, nullptr);
  const auto cpu = MakeInterpreter(model, nullptr, 2);
  ASSERT_NE(cpu, nullptr);
  auto device = OpenDevice({.device = "emu", .threads = 2});
  ASSERT_TRUE(device.ok()) << device.status().message();
  DeviceDelegate delegate(*std::move(device));
  const auto emulated = MakeInterpreter(model, &delegate, 2);
  ASSERT_NE(emulated, nullptr);
  ASSERT_EQ(emulated->partitions().size(), 1u);
  const Partition& partition = emulated->partitions()[0];
  EXPECT_EQ(partition.nodes.size(), model->graph().nodes.size());
  EXPECT_THAT(partition.report->note, HasSubstr("bands of rows"));
  EXPECT_EQ(RunWithSeed(emulated.get(), 1), RunWithSeed(cpu.get(), 1));
}

// Neither the input nor the output of a layer that has no neighbours fits on chip.
TEST(LargeImages, ConvolutionByItself) {
  ModelBuilder m;
  m.Output(m.Conv2D(m.Input({1, 721, 1281, 12}), {.channels = 12, .kernel = 3}));
  ExpectRunsInBands(m);
}

TEST(LargeImages, ElementWiseByItself) {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({1, 1500, 2000, 3})));
  ExpectRunsInBands(m);
}

TEST(LargeImages, PoseBackboneOf721x1281) {
  ModelBuilder m;
  int32_t x = m.Conv2D(m.Input({1, 721, 1281, 3}), {.channels = 24, .kernel = 3, .stride = 2});
  const auto block = [&](int32_t channels, int32_t stride) {
    x = m.DepthwiseConv2D(x, {.kernel = 3, .stride = stride});
    x = m.Conv2D(x, {.channels = channels});
  };
  block(48, 1);
  block(96, 2);
  block(96, 1);
  block(192, 2);
  block(192, 1);
  block(384, 2);
  m.Output(m.Conv2D(x, {.channels = 17}));
  m.Output(m.Conv2D(x, {.channels = 34}));
  ExpectRunsInBands(m);
}

TEST(LargeImages, ResidualBlocksOf513x513) {
  ModelBuilder m;
  const int32_t stem =
      m.Conv2D(m.Input({1, 513, 513, 3}), {.channels = 16, .kernel = 3, .stride = 2});
  const int32_t wide = m.DepthwiseConv2D(m.Conv2D(stem, {.channels = 96}), {.kernel = 3});
  const int32_t sum = m.Add(stem, m.Conv2D(wide, {.channels = 16}));
  const int32_t again = m.DepthwiseConv2D(m.Conv2D(sum, {.channels = 96}), {.kernel = 3});
  m.Output(m.Add(sum, m.Conv2D(again, {.channels = 16})));
  ExpectRunsInBands(m);
}

// Neither the picture that comes in nor the one that goes out fits on chip.
TEST(LargeImages, SuperResolutionTo4K) {
  ModelBuilder m;
  const int32_t input = m.Input({1, 1080, 1920, 3});
  const int32_t x = m.Conv2D(input, {.channels = 8, .kernel = 3});
  const int32_t y = m.Add(x, m.Conv2D(x, {.channels = 8, .kernel = 3}));
  const int32_t pixels = m.Conv2D(y, {.channels = 12, .kernel = 3});
  m.Output(m.Node(OpType::kDEPTH_TO_SPACE, {pixels}, {1, 2160, 3840, 3}, BlockOptions{2}));
  ExpectRunsInBands(m);
}

}  // namespace
}  // namespace atollrt
