// SPDX-License-Identifier: Apache-2.0
//
// For each limit of driver/isa/operand_limits.inc, and of what an executable may be, models at it
// and one beyond it: the former run on the device, with the bytes of the CPU, the latter stay on
// the CPU with the sentence of the rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "delegate/delegate.h"
#include "delegate/partitioner.h"
#include "driver/isa/executable.h"
#include "driver/isa/instruction.h"
#include "runtime/interpreter.h"
#include "tests/support/emulated_device.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

const char* RuleOf(OperandLimit limit) {
  constexpr const char* kRules[] = {
#define ATOLL_OPERAND_LIMIT(Name, most, meaning, rule) rule,
#include "driver/isa/operand_limits.inc"
#undef ATOLL_OPERAND_LIMIT
  };
  return kRules[static_cast<size_t>(limit)];
}

// A filter whose taps lie apart: [1, h, w, channels] -> the same.
int32_t Dilated(ModelBuilder& m, OpType type, const Shape& image, const Shape& kernel,
                int32_t dilation) {
  const bool depthwise = type == OpType::kDEPTHWISE_CONV_2D;
  const int32_t x = m.Input(image);
  const ModelBuilder::Filter one{.channels = image[3]};
  const int32_t y = depthwise ? m.DepthwiseConv2D(x, one) : m.Conv2D(x, one);
  const int32_t small = m.graph().nodes.back().inputs[1];
  Shape shape = m.tensor(small).shape;
  shape[1] = kernel[0];
  shape[2] = kernel[1];
  const int32_t weights = m.Constant(shape);
  m.tensor(weights).quantization = m.tensor(small).quantization;
  Node& node = m.graph().nodes.back();
  node.inputs[1] = weights;
  auto& options = std::get<Conv2DOptions>(node.options);
  options.dilation_h = options.dilation_w = dilation;
  return y;
}

struct LimitCase {
  const char* name;
  OperandLimit limit;
  void (*build)(ModelBuilder& m, bool beyond);
};

// Padding is half of (kernel - 1) * dilation here, 65535 or 65536.
template <OpType type, bool vertical>
void BuildPad(ModelBuilder& m, bool beyond) {
  const int32_t taps = beyond ? 4 : 3;
  m.Output(Dilated(m, type, vertical ? Shape{1, 40, 1, 2} : Shape{1, 1, 40, 2},
                   vertical ? Shape{taps, 1} : Shape{1, taps}, beyond ? 43691 : 65535));
}

const LimitCase kCases[] = {
    {"PadOfConvolutionAbove", OperandLimit::kPad, BuildPad<OpType::kCONV_2D, true>},
    {"PadOfConvolutionLeft", OperandLimit::kPad, BuildPad<OpType::kCONV_2D, false>},
    {"PadOfDepthwiseAbove", OperandLimit::kPad, BuildPad<OpType::kDEPTHWISE_CONV_2D, true>},
    {"PadOfDepthwiseLeft", OperandLimit::kPad, BuildPad<OpType::kDEPTHWISE_CONV_2D, false>},
    {"TapsOfConvolution", OperandLimit::kTaps,
     [](ModelBuilder& m, bool beyond) {
       m.Output(m.Conv2D(m.Input({1, 1, 2, 65536 + beyond}), {.channels = 2}));
     }},
    {"TapsOfDepthwise", OperandLimit::kTaps,
     [](ModelBuilder& m, bool beyond) {
       m.Output(Dilated(m, OpType::kDEPTHWISE_CONV_2D, {1, 3, 3, 2}, {256, 256 + beyond}, 1));
     }},
    {"TapsOfTransposedConvolution", OperandLimit::kTaps,
     [](ModelBuilder& m, bool beyond) {
       m.Output(m.TransposeConv(m.Input({1, 1, 2, 65536 + beyond}), {.channels = 2}, 1, 2));
     }},
    {"TapsOfFullyConnected", OperandLimit::kTaps,
     [](ModelBuilder& m, bool beyond) {
       m.Output(m.FullyConnected(m.Input({1, 65536 + beyond}), 3));
     }},
    {"TapsOfAveragePool", OperandLimit::kTaps,
     [](ModelBuilder& m, bool beyond) {
       const int32_t y = m.AveragePool(m.Input({1, 3, 3, 2}),
                                       {.size = 256, .stride = 1, .padding = Padding::kSame});
       if (beyond) std::get<Pool2DOptions>(m.graph().nodes.back().options).filter_w = 257;
       m.Output(y);
     }},
    {"TapsOfMaxPool", OperandLimit::kTaps,
     [](ModelBuilder& m, bool beyond) {
       const int32_t y =
           m.MaxPool(m.Input({1, 3, 3, 2}), {.size = 256, .stride = 1, .padding = Padding::kSame});
       if (beyond) std::get<Pool2DOptions>(m.graph().nodes.back().options).filter_w = 257;
       m.Output(y);
     }},
    {"InputsOfLstm", OperandLimit::kTaps,
     [](ModelBuilder& m, bool beyond) {
       m.Output(m.Lstm(m.Input({1, 1, 65536 + beyond}), {.units = 1}));
     }},
};

class OperandLimits : public testing::TestWithParam<LimitCase> {};

std::vector<uint8_t> Run(const std::shared_ptr<const Model>& model, Delegate* delegate,
                         bool* on_device) {
  auto interpreter = Interpreter::Create(model, {.threads = 1, .delegate = delegate});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  if (!interpreter.ok()) return {};
  *on_device = !(*interpreter)->partitions().empty();
  Rng rng(1);
  for (const int32_t input : model->graph().inputs) rng.Fill((*interpreter)->TensorBytes(input));
  const Status status = (*interpreter)->Invoke();
  EXPECT_TRUE(status.ok()) << status.message();
  const std::span<const uint8_t> bytes =
      (*interpreter)->ConstTensorBytes(model->graph().outputs[0]);
  return {bytes.begin(), bytes.end()};
}

void ExpectOnDevice(const ModelBuilder& m) {
  const std::shared_ptr<const Model> model = m.Load();
  ASSERT_NE(model, nullptr);
  DeviceDelegate delegate(EmulatedDevice{}.Open());
  bool on_device = false;
  const std::vector<uint8_t> expected = Run(model, nullptr, &on_device);
  EXPECT_TRUE(Run(model, &delegate, &on_device) == expected);
  EXPECT_TRUE(on_device);
}

void ExpectOnCpu(const ModelBuilder& m, const std::string& rule) {
  const std::shared_ptr<const Model> model = m.Load();
  ASSERT_NE(model, nullptr);
  const NodeSets sets = PartitionGraph(model->graph(), {.memory_bytes = int64_t{1} << 31}, {});
  EXPECT_EQ(sets.reasons.back(), rule);
  DeviceDelegate delegate(EmulatedDevice{}.Open());
  bool on_device = true;
  const std::vector<uint8_t> bytes = Run(model, &delegate, &on_device);
  EXPECT_FALSE(bytes.empty());
  EXPECT_FALSE(on_device);
}

TEST_P(OperandLimits, AreThoseOfTheDevice) {
  ModelBuilder at, beyond;
  GetParam().build(at, false);
  ExpectOnDevice(at);
  GetParam().build(beyond, true);
  ExpectOnCpu(beyond, RuleOf(GetParam().limit));
}

INSTANTIATE_TEST_SUITE_P(All, OperandLimits, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<LimitCase>& test) {
                           return std::string(test.param.name);
                         });

// Images that reach this far have 2 GiB, and the loader takes none that reach one cell further, so
// only the verdict is asked for.
TEST(OperandLimits, ReachOfWindows) {
  for (const bool beyond : {false, true}) {
    ModelBuilder m;
    const int32_t x = m.Input({1, 1, INT32_MAX, 1});
    const int32_t y = m.MaxPool(x, {.size = 2, .stride = 1, .padding = Padding::kSame});
    std::get<Pool2DOptions>(m.graph().nodes.back().options).filter_w = beyond ? 3 : 2;
    m.Output(y);
    const NodeSets sets = PartitionGraph(m.graph(), {.memory_bytes = int64_t{1} << 33}, {});
    EXPECT_EQ(sets.reasons[0], beyond ? RuleOf(OperandLimit::kReach) : "");
  }
}

TEST(OperandLimits, InputsAndOutputsOfAnExecutable) {
  const auto build = [](ModelBuilder& m, size_t inputs) {
    std::vector<int32_t> parts;
    for (size_t i = 0; i < inputs; ++i) parts.push_back(m.Input({1, 2}));
    m.Output(m.Concatenation(parts, 0));
  };
  ModelBuilder at, beyond;
  build(at, kMaxLayers - 1);
  ExpectOnDevice(at);
  build(beyond, kMaxLayers);
  ExpectOnCpu(beyond, "it must have at most 1024 inputs and outputs");
}

// Executables know no more than kMaxLayerRank dimensions, but bytes are bytes.
TEST(OperandLimits, TensorsOfManyDimensionsRun) {
  ModelBuilder m;
  m.Output(m.Logistic(m.Input({1, 2, 1, 3, 1, 2, 1, 2, 1, 2})));
  ExpectOnDevice(m);
}

}  // namespace
}  // namespace atollrt
