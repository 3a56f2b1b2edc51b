// SPDX-License-Identifier: Apache-2.0
//
// The setup arithmetic whose results the conformance cases only show at the end of a layer.
#include "runtime/ops/quantized_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/ops/elementwise_params.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

Tensor ByteTensor(DataType type, float scale, int64_t zero_point) {
  Tensor tensor;
  tensor.type = type;
  tensor.shape = {1};
  tensor.quantization = {.scales = {scale}, .zero_points = {zero_point}};
  return tensor;
}

// ---- Fused activations --------------------------------------------------------------------------

struct ClampCase {
  const char* what;
  DataType type;
  float scale;
  int64_t zero_point;
  Activation activation;
  int32_t min, max;
};

constexpr ClampCase kClamps[] = {
    {"none, int8", DataType::kInt8, 0.1f, 3, Activation::kNone, -128, 127},
    {"none, uint8", DataType::kUInt8, 0.1f, 3, Activation::kNone, 0, 255},
    {"relu starts at the zero point", DataType::kInt8, 0.1f, 3, Activation::kRelu, 3, 127},
    {"relu of an unsigned type", DataType::kUInt8, 0.1f, 130, Activation::kRelu, 130, 255},
    {"relu6 ends at 6 / scale", DataType::kInt8, 0.1f, -20, Activation::kRelu6, -20, 40},
    {"relu6 beyond the type", DataType::kInt8, 0.01f, -128, Activation::kRelu6, -128, 127},
    {"relu6 of the usual scale", DataType::kUInt8, 6.0f / 255, 0, Activation::kRelu6, 0, 255},
    {"relu -1 to 1", DataType::kInt8, 0.1f, 5, Activation::kReluN1To1, -5, 15},
    {"a scale too small for int32", DataType::kInt8, 1e-30f, 0, Activation::kReluN1To1, -128, 127},
};

TEST(FusedClamp, FollowsTheTable) {
  for (const ClampCase& c : kClamps) {
    const auto clamp = FusedClamp(ByteTensor(c.type, c.scale, c.zero_point), c.activation);
    ASSERT_TRUE(clamp.ok()) << c.what;
    EXPECT_EQ(clamp->min, c.min) << c.what;
    EXPECT_EQ(clamp->max, c.max) << c.what;
  }
}

TEST(FusedClamp, RefusesTanhAndSignBit) {
  for (const Activation activation : {Activation::kTanh, Activation::kSignBit}) {
    const auto clamp = FusedClamp(ByteTensor(DataType::kInt8, 1, 0), activation);
    EXPECT_EQ(clamp.status().code(), StatusCode::kUnsupported);
  }
}

// ---- Multipliers --------------------------------------------------------------------------------

// A filter with scales chosen so that the product differs in float and in double.
class FilterParams : public testing::Test {
 protected:
  static constexpr float kInputScale = 0.1f;
  static constexpr float kWeightScale = 0.003f;
  static constexpr float kOutputScale = 0.07f;
  static constexpr double kDoubleForm =
      static_cast<double>(kInputScale) * static_cast<double>(kWeightScale) / kOutputScale;
  static constexpr double kFloatForm =
      static_cast<double>(kInputScale * kWeightScale) / kOutputScale;

  void Make(DataType type, bool fully_connected) {
    const int32_t x = m_.Input({1, 1, 1, 2});
    const int32_t y = fully_connected ? m_.FullyConnected(x, 1) : m_.Conv2D(x, {.channels = 1});
    const int64_t zero_point = type == DataType::kUInt8 ? 128 : 0;
    for (const int32_t tensor : {x, m_.graph().nodes[0].inputs[1], y}) {
      m_.tensor(tensor).type = type;
      m_.tensor(tensor).quantization.zero_points = {zero_point};
    }
    m_.tensor(x).quantization.scales = {kInputScale};
    m_.tensor(m_.graph().nodes[0].inputs[1]).quantization.scales = {kWeightScale};
    m_.tensor(y).quantization.scales = {kOutputScale};
    m_.Output(y);
    model_ = m_.Load();
  }
  const Graph& graph() { return model_->graph(); }

  ModelBuilder m_;
  std::shared_ptr<const Model> model_;
};

TEST_F(FilterParams, TheTwoFormsDiffer) { ASSERT_NE(kDoubleForm, kFloatForm); }

TEST_F(FilterParams, SignedConvolutionsMultiplyScalesInDouble) {
  Make(DataType::kInt8, false);
  const auto params = MakeConv2DParams(graph(), graph().nodes[0]);
  ASSERT_TRUE(params.ok()) << params.status().message();
  EXPECT_EQ(params->output.mode, RequantizeMode::kFixedPoint);
  EXPECT_EQ(params->output.channels[0].multiplier.value, QuantizeMultiplier(kDoubleForm).value);
}

TEST_F(FilterParams, UnsignedConvolutionsMultiplyScalesInFloat) {
  Make(DataType::kUInt8, false);
  const auto params = MakeConv2DParams(graph(), graph().nodes[0]);
  ASSERT_TRUE(params.ok()) << params.status().message();
  EXPECT_EQ(params->output.channels[0].multiplier.value, QuantizeMultiplier(kFloatForm).value);
}

TEST_F(FilterParams, FullyConnectedLayersScaleInDouble) {
  Make(DataType::kUInt8, true);
  const auto params = MakeFullyConnectedParams(graph(), graph().nodes[0]);
  ASSERT_TRUE(params.ok()) << params.status().message();
  EXPECT_EQ(params->output.mode, RequantizeMode::kDouble);
  EXPECT_EQ(params->output.channels[0].scale, kDoubleForm);
}

TEST_F(FilterParams, UnsignedWeightsKeepTheirZeroPoint) {
  Make(DataType::kUInt8, false);
  EXPECT_EQ(MakeConv2DParams(graph(), graph().nodes[0])->weight_zero_point, 128);
}

TEST_F(FilterParams, BiasOfAnotherScaleIsRefusedInUnsignedLayers) {
  Make(DataType::kUInt8, false);
  m_.tensor(m_.graph().nodes[0].inputs[2]).quantization = {.scales = {0.5f}, .zero_points = {0}};
  model_ = m_.Load();
  const auto params = MakeConv2DParams(graph(), graph().nodes[0]);
  EXPECT_EQ(params.status().code(), StatusCode::kCorruptModel);
  EXPECT_THAT(params.status().message(), HasSubstr("has scale 0.5, must be the product 0.0003"));
}

TEST_F(FilterParams, MixedTypesAreRefused) {
  Make(DataType::kInt8, false);
  m_.tensor(m_.graph().nodes[0].inputs[1]).type = DataType::kUInt8;
  model_ = m_.Load();
  EXPECT_EQ(MakeConv2DParams(graph(), graph().nodes[0]).status().code(), StatusCode::kCorruptModel);
}

// ---- Sums ---------------------------------------------------------------------------------------

TEST(PairParams, InputsAreScaledAgainstTwiceTheLargerScale) {
  ModelBuilder m;
  const int32_t a = m.Input({1, 4});
  const int32_t b = m.Input({1, 4});
  const int32_t y = m.Add(a, b);
  m.tensor(a).quantization.scales = {0.5f};
  m.tensor(b).quantization.scales = {0.125f};
  m.tensor(y).quantization.scales = {0.25f};
  m.Output(y);
  const auto model = m.Load();
  const auto params = MakePairParams(model->graph(), model->graph().nodes[0]);
  ASSERT_TRUE(params.ok());
  const auto real = [](const Multiplier& multiplier) {
    return std::ldexp(multiplier.value, multiplier.exponent - 31);
  };
  EXPECT_EQ(real(params->input1), 0.5);
  EXPECT_EQ(real(params->input2), 0.125);
  EXPECT_EQ(std::ldexp(real(params->output), params->left_shift), 4.0);
}

TEST(PairParams, AnOutputScaleTooSmallIsRefused) {
  ModelBuilder m;
  const int32_t y = m.Add(m.Input({1, 4}), m.Input({1, 4}));
  m.tensor(y).quantization.scales = {1e-9f};
  m.Output(y);
  const auto model = m.Load();
  EXPECT_THAT(MakePairParams(model->graph(), model->graph().nodes[0]).status().message(),
              HasSubstr("output scale 1e-09 is too small"));
}

// ---- Reductions ---------------------------------------------------------------------------------

TEST(ReducedAxes, CountFromEitherEndAndOnce) {
  ModelBuilder m;
  const int32_t axes = m.Integers({3}, {1, -1, 1});
  m.Output(m.Node(OpType::kMEAN, {m.Input({2, 5, 6, 3}), axes}, {2, 6}, ReducerOptions{}));
  const auto model = m.Load();
  EXPECT_EQ(ReducedAxes(model->graph(), model->graph().nodes[0]),
            (std::vector<bool>{false, true, false, true}));
}

TEST(ByteSumParams, FoldTheDivisionIntoTheMultiplierOfMean) {
  for (const OpType type : {OpType::kMEAN, OpType::kSUM}) {
    ModelBuilder m;
    const int32_t axes = m.Integers({2}, {1, 3});
    m.Output(m.Node(type, {m.Input({2, 4, 6, 2}), axes}, {2, 6}, ReducerOptions{}));
    const auto model = m.Load();
    const auto params = MakeByteSumParams(model->graph(), model->graph().nodes[0]);
    ASSERT_TRUE(params.ok());
    EXPECT_EQ(std::ldexp(params->multiplier.value, params->multiplier.exponent - 31),
              type == OpType::kMEAN ? 0.125 : 1.0);
  }
}

// ---- Tables -------------------------------------------------------------------------------------

// The table of a node from one tensor to another.
Result<LookupTable> TableOf(OpType type, const Tensor& from, const Tensor& to) {
  Graph graph;
  graph.tensors = {from, to};
  Node node;
  node.type = type;
  node.inputs = {0};
  node.outputs = {1};
  graph.nodes = {node};
  return MakeNodeTable(graph, graph.nodes[0]);
}

TEST(NodeTable, ReluOfEqualQuantizationOnlyClamps) {
  const Tensor tensor = ByteTensor(DataType::kInt8, 0.1f, -10);
  const auto table = TableOf(OpType::kRELU, tensor, tensor);
  ASSERT_TRUE(table.ok());
  for (int value = -128; value < 128; ++value) {
    EXPECT_EQ(static_cast<int8_t>((*table)[static_cast<uint8_t>(value)]), std::max(value, -10));
  }
}

TEST(NodeTable, QuantizeShiftsBetweenSignedAndUnsigned) {
  const auto table = TableOf(OpType::kQUANTIZE, ByteTensor(DataType::kUInt8, 0.1f, 128),
                             ByteTensor(DataType::kInt8, 0.1f, 0));
  ASSERT_TRUE(table.ok());
  for (int value = 0; value < 256; ++value) {
    EXPECT_EQ((*table)[static_cast<size_t>(value)], value ^ 0x80);
  }
}

TEST(NodeTable, LogisticIsWithinAStepOfTheFunction) {
  const auto table = TableOf(OpType::kLOGISTIC, ByteTensor(DataType::kInt8, 0.05f, 4),
                             ByteTensor(DataType::kInt8, 1.0f / 256, -128));
  ASSERT_TRUE(table.ok());
  for (int value = -128; value < 128; ++value) {
    const double want = 256 / (1 + std::exp(-0.05 * (value - 4))) - 128;
    EXPECT_NEAR(static_cast<int8_t>((*table)[static_cast<uint8_t>(value)]), want, 1.0);
  }
}

TEST(NodeTable, LogisticNeedsTheScaleOfItsRange) {
  const Tensor tensor = ByteTensor(DataType::kInt8, 0.1f, 0);
  EXPECT_THAT(TableOf(OpType::kLOGISTIC, tensor, tensor).status().message(),
              HasSubstr("must have 0.00390625 and -128"));
}

}  // namespace
}  // namespace atollrt
