// SPDX-License-Identifier: Apache-2.0
//
// Filters of shapes that no kernel for bytes is made for: what TensorFlow Lite runs runs here, too,
// without memory for what is outside of the image, or is refused with the numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/ops/cpu_ops.h"
#include "tests/support/rng.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kWidth = 100;
constexpr int32_t kChannels = 4;
constexpr int32_t kTaps = 32769;
constexpr int32_t kDilation = 65535;

Conv2DOptions& OptionsOfLast(ModelBuilder& m) {
  return std::get<Conv2DOptions>(m.graph().nodes.back().options);
}

// An image of one line under one filter of `taps` columns; SAME, so the one in the middle is over
// each pixel.
ModelBuilder LineFilter(OpType type, int32_t taps, int32_t dilation) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 1, kWidth, kChannels});
  const bool depthwise = type == OpType::kDEPTHWISE_CONV_2D;
  const int32_t y = depthwise ? m.DepthwiseConv2D(x, {.kernel = 1})
                              : m.Conv2D(x, {.channels = kChannels, .kernel = 1});
  m.Output(y);
  Tensor& weights = m.tensor(m.graph().nodes[0].inputs[1]);
  const std::vector<uint8_t> middle(weights.data.begin(), weights.data.end());
  std::vector<uint8_t> all(middle.size() * static_cast<size_t>(taps), 77);
  const size_t filters = depthwise ? 1 : kChannels;
  const size_t cell = middle.size() / filters;
  for (size_t f = 0; f < filters; ++f) {
    const size_t at = (f * static_cast<size_t>(taps) + static_cast<size_t>(taps) / 2) * cell;
    std::copy_n(middle.begin() + static_cast<std::ptrdiff_t>(f * cell), cell,
                all.begin() + static_cast<std::ptrdiff_t>(at));
  }
  Shape shape = weights.shape;
  shape[2] = taps;
  const Quantization quantization = weights.quantization;
  const int32_t far = m.Constant(DataType::kInt8, shape, all);
  m.tensor(far).quantization = quantization;
  m.graph().nodes[0].inputs[1] = far;
  OptionsOfLast(m).dilation_w = dilation;
  return m;
}

std::vector<int8_t> RunOnPattern(const ModelBuilder& m) {
  std::vector<int8_t> x(kWidth * kChannels);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int8_t>(i * 37);
  return RunModel<int8_t>(m, x);
}

TEST(FilterOps, TapsFarOutsideOfTheImageTakeNoMemory) {
  for (const OpType type : {OpType::kDEPTHWISE_CONV_2D, OpType::kCONV_2D}) {
    const ModelBuilder wide = LineFilter(type, kTaps, kDilation);
    const std::unique_ptr<Interpreter> interpreter = Prepare(wide);
    ASSERT_NE(interpreter, nullptr);
    EXPECT_LT(interpreter->arena_bytes(), 1 << 20);
    const std::vector<int8_t> want = RunOnPattern(LineFilter(type, 1, 1));
    EXPECT_EQ(RunOnPattern(wide), want);
    // And those whose lines would not take all memory, but a hundred thousand times the image's.
    for (const int32_t taps : {5, 31}) {
      const ModelBuilder beside = LineFilter(type, taps, kDilation);
      const std::unique_ptr<Interpreter> small = Prepare(beside);
      ASSERT_NE(small, nullptr);
      EXPECT_LT(small->arena_bytes(), 1 << 20);
      EXPECT_EQ(RunOnPattern(beside), want);
    }
  }
}

TEST(FilterOps, WindowsBeyond32BitsAreRefused) {
  for (const OpType type : {OpType::kDEPTHWISE_CONV_2D, OpType::kCONV_2D}) {
    const auto model = Model::FromBuffer(LineFilter(type, kTaps + 2, kDilation).Build());
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(
        model.status().message(),
        HasSubstr("100 windows of width 32771, with stride 1 and dilation 65535, reach over "
                  "2147582050 cells; at most 2147483647 are supported"));
  }
}

// A filter for each channel, of which each kernel for bytes would take a kilobyte.
TEST(FilterOps, ManyGroupsEqualADepthwiseConvolution) {
  constexpr int32_t kGroups = 6000;
  const auto make = [](bool grouped) {
    ModelBuilder m;
    const int32_t x = m.Input({1, 1, 2, kGroups});
    m.Output(m.DepthwiseConv2D(x, {.kernel = 1}));
    if (grouped) {
      Node& node = m.graph().nodes[0];
      node.type = OpType::kCONV_2D;
      Tensor& weights = m.tensor(node.inputs[1]);
      weights.shape = {kGroups, 1, 1, 1};
      weights.quantization.dimension = 0;
    }
    return m;
  };
  std::vector<int8_t> x(2 * kGroups);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int8_t>(i * 41);
  const std::vector<int8_t> want = RunModel<int8_t>(make(false), x);
  EXPECT_EQ(RunModel<int8_t>(make(true), x), want);
}

// Two megabytes of weights would become two gigabytes, most of them zeros.
TEST(FilterOps, TransposedStridesFarBeyondTheFilterAreRefused) {
  ModelBuilder m;
  const int32_t x = TypedInput<float>(m, {1, 2, 2, 64});
  const int32_t weights =
      m.Constant(DataType::kFloat32, {8192, 1, 1, 64}, std::vector<uint8_t>(size_t{8192} * 64 * 4));
  m.tensor(weights).quantization = {};
  const int32_t y = m.Node(
      OpType::kTRANSPOSE_CONV, {m.Integers({4}, {1, 64, 64, 8192}), weights, x}, {1, 64, 64, 8192},
      Conv2DOptions{.padding = Padding::kSame, .stride_h = 32, .stride_w = 32});
  m.Output(SetType<float>(m, y));
  const auto interpreter = Interpreter::Create(m.Load(), {.threads = 1});
  ASSERT_FALSE(interpreter.ok());
  EXPECT_EQ(interpreter.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(interpreter.status().message(),
              HasSubstr("strides of 32 and 32 with a filter of 1 x 1 need weights of 2147483648"));
}

// Each node keeps the weights that it shares with others in an order of its own: once for each
// phase of a transposed convolution, padded for each group, for all gates of a recurrent layer.
TEST(FilterOps, WeightsThatManyNodesShareAreBounded) {
  const auto expect_refused = [](const ModelBuilder& m) {
    const auto interpreter = Interpreter::Create(m.Load(), {.threads = 1});
    EXPECT_EQ(interpreter.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(interpreter.status().message(), HasSubstr("nodes share their weights so often"));
  };
  {
    ModelBuilder m;  // 20 times 256 KiB in 1,024 phases
    const int32_t x = TypedInput<float>(m, {1, 1, 1, 64});
    const int32_t weights =
        m.Constant(DataType::kFloat32, {1024, 1, 1, 64}, std::vector<uint8_t>(size_t{256} << 10));
    m.tensor(weights).quantization = {};
    const int32_t size = m.Integers({4}, {1, 32, 32, 1024});
    for (int i = 0; i < 20; ++i) {
      const int32_t y =
          m.Node(OpType::kTRANSPOSE_CONV, {size, weights, x}, {1, 32, 32, 1024},
                 Conv2DOptions{.padding = Padding::kSame, .stride_h = 32, .stride_w = 32});
      m.Output(SetType<float>(m, y));
    }
    expect_refused(m);
  }
  {
    constexpr int32_t kGroups = 4096;
    ModelBuilder m;  // 400 times 4,096 filters of one weight
    const int32_t x = m.Input({1, 1, 1, kGroups});
    m.Output(m.DepthwiseConv2D(x, {.kernel = 1}));
    Node& node = m.graph().nodes[0];
    node.type = OpType::kCONV_2D;
    m.tensor(node.inputs[1]).shape = {kGroups, 1, 1, 1};
    m.tensor(node.inputs[1]).quantization.dimension = 0;
    const std::vector<int32_t> inputs = node.inputs;
    const Conv2DOptions options = {.padding = Padding::kSame};
    for (int i = 1; i < 400; ++i) {
      m.Output(m.Node(OpType::kCONV_2D, inputs, {1, 1, 1, kGroups}, options));
    }
    expect_refused(m);
  }
  {
    Graph graph;
    Tensor weights;
    weights.type = DataType::kFloat32;
    weights.shape = {16, 16};
    graph.tensors = {weights};
    Node node;
    node.type = OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM;
    node.inputs = {0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 0};
    EXPECT_EQ(KeptWeightBytes(graph, node), 8 * 16 * 16 * 4);
  }
}

// One pixel under a long filter, for which its stride does not matter: neither to the values, nor
// to the time, which was that of all taps for each output.
TEST(FilterOps, TransposedTapsWithoutInputTakeNoTime) {
  constexpr int32_t kLong = 65535;
  const auto make = [](int32_t stride) {
    ModelBuilder m;
    const int32_t x = m.Input({1, 1, 1, 1});
    m.Output(m.TransposeConv(
        x, {.channels = 1, .kernel = 1, .stride = stride, .padding = Padding::kValid}, 1, kLong));
    const Quantization quantization = m.tensor(m.graph().nodes[0].inputs[1]).quantization;
    std::vector<uint8_t> bytes(kLong);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 29);
    const int32_t wide = m.Constant(DataType::kInt8, {1, 1, kLong, 1}, bytes);
    m.tensor(wide).quantization = quantization;
    m.graph().nodes[0].inputs[1] = wide;
    return m;
  };
  const std::vector<int8_t> x = {100};
  EXPECT_EQ(RunModel<int8_t>(make(kLong), x), RunModel<int8_t>(make(1), x));
}

}  // namespace
}  // namespace atollrt
