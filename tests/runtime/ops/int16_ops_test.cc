// SPDX-License-Identifier: Apache-2.0
//
// What is refused of operators of int16, and why. (Their bytes: compat/int16_ops_test.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

struct Units {
  float scale;
  int32_t zero_point = 0;
};

std::string WhyNot(OpType type, Shape shape, Units input, Units output, OpOptions options = {}) {
  ModelBuilder m;
  const int32_t x = TypedInput<int16_t>(m, shape);
  Quantize(m, x, input.scale, input.zero_point);
  std::vector<int32_t> inputs = {x};
  if (type == OpType::kMUL) inputs.push_back(x);
  const int32_t y = SetType<int16_t>(m, m.Node(type, inputs, shape, std::move(options)));
  Quantize(m, y, output.scale, output.zero_point);
  m.Output(y);
  return WhyRefused(m).message();
}

constexpr Units kUnit = {1.0f / 32768};

TEST(Int16Ops, NeedZeroPointsOfZero) {
  for (const OpType type : {OpType::kMUL, OpType::kRELU, OpType::kRELU6}) {
    const OpOptions options =
        type == OpType::kMUL ? OpOptions(ElementwiseOptions()) : OpOptions(NoOptions());
    EXPECT_THAT(WhyNot(type, {4}, {0.01f, 3}, {0.01f}, options), HasSubstr("zero point 3"));
    EXPECT_THAT(WhyNot(type, {4}, {0.01f}, {0.01f, -1}, options), HasSubstr("zero point -1"));
  }
  for (const OpType type : {OpType::kLOGISTIC, OpType::kTANH}) {
    EXPECT_THAT(WhyNot(type, {4}, {0.01f, 3}, kUnit), HasSubstr("zero point 3"));
  }
  EXPECT_THAT(WhyNot(OpType::kLEAKY_RELU, {4}, {0.01f, 3}, {0.01f}, LeakyReluOptions()),
              HasSubstr("zero point 3"));
  EXPECT_THAT(WhyNot(OpType::kSOFTMAX, {4}, {0.01f, 3}, kUnit, SoftmaxOptions()),
              HasSubstr("zero point 3"));
}

TEST(Int16Ops, NeedThePrescribedOutput) {
  for (const OpType type : {OpType::kLOGISTIC, OpType::kTANH}) {
    EXPECT_THAT(WhyNot(type, {4}, {0.01f}, {1.0f / 16384}), HasSubstr("scale 6.10352e-05"));
  }
  EXPECT_THAT(WhyNot(OpType::kSOFTMAX, {4}, {0.01f}, {1.0f / 256}, SoftmaxOptions()),
              HasSubstr("scale 0.00390625"));
}

TEST(Int16Ops, AreRefusedBeyondTheirArithmetic) {
  for (const OpType type : {OpType::kLOGISTIC, OpType::kTANH}) {
    for (const float scale : {5.34f, 1e30f}) {
      EXPECT_THAT(WhyNot(type, {4}, {scale}, kUnit), HasSubstr("at most 5.33325"));
    }
  }
  EXPECT_THAT(WhyNot(OpType::kSOFTMAX, {1, 65537}, {0.01f}, kUnit, SoftmaxOptions()),
              HasSubstr("rows of 65537"));
  EXPECT_THAT(WhyNot(OpType::kSOFTMAX, {4}, {0.5f}, kUnit, SoftmaxOptions{.beta = 11}),
              HasSubstr("scale 0.5 times beta 11"));
  constexpr float kEndless = std::numeric_limits<float>::infinity();
  for (const float beta : {0.0f, -1.0f, kEndless, kEndless - kEndless}) {
    EXPECT_THAT(WhyNot(OpType::kSOFTMAX, {4}, {0.5f}, kUnit, SoftmaxOptions{.beta = beta}),
                HasSubstr("beta"));
  }
}

TEST(Int16Ops, ProductsThatAreNotQuantizedAreNoCorruptModel) {
  ModelBuilder m;
  const int32_t x = TypedInput<int16_t>(m, {4});
  m.Output(SetType<int16_t>(m, m.Node(OpType::kMUL, {x, x}, {4}, ElementwiseOptions())));
  const Status status = WhyRefused(m);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("not quantized"));
}

// Outputs of 1/4 and 1/8 per step, worked out by hand.
std::vector<int16_t> Rectified(OpType type, float scale, const std::vector<int16_t>& values,
                               OpOptions options = {}) {
  ModelBuilder m;
  const int32_t x = TypedInput<int16_t>(m, {static_cast<int32_t>(values.size())});
  Quantize(m, x, scale, 0);
  const int32_t y = SetType<int16_t>(m, m.Node(type, {x}, {}, std::move(options)));
  Quantize(m, y, 0.25f, 0);
  m.Output(y);
  return RunModel<int16_t>(m, values);
}

TEST(Int16Ops, Rectify) {
  using ::testing::ElementsAre;
  EXPECT_THAT(Rectified(OpType::kRELU, 0.5f, {-32768, -3, 0, 3, 16383, 16384, 32767}),
              ElementsAre(0, 0, 0, 6, 32766, 32767, 32767));
  EXPECT_THAT(Rectified(OpType::kRELU6, 0.125f, {-1, 1, 2, 3, 47, 48, 49, 32767}),
              ElementsAre(0, 1, 1, 2, 24, 24, 24, 24));
  // Halves of products go up, those of shifts away from zero.
  EXPECT_THAT(Rectified(OpType::kLEAKY_RELU, 0.25f, {-32768, -5, -4, -3, -1, 0, 7},
                        LeakyReluOptions{.alpha = 0.5f}),
              ElementsAre(-16384, -2, -2, -1, 0, 0, 7));
  EXPECT_THAT(
      Rectified(OpType::kLEAKY_RELU, 0.25f, {-32768, -4, 7}, LeakyReluOptions{.alpha = -2.0f}),
      ElementsAre(32767, 8, 7));
}

TEST(Int16Ops, MultiplyWithBroadcasting) {
  ModelBuilder m;
  const int32_t x = TypedInput<int16_t>(m, {2, 1});
  Quantize(m, x, 0.5f, 0);
  std::vector<uint8_t> bytes;
  for (const int value : {1, -3, 32767}) {
    bytes.push_back(static_cast<uint8_t>(value));
    bytes.push_back(static_cast<uint8_t>(value >> 8));
  }
  const int32_t factors = m.Constant(DataType::kInt16, {3}, bytes);
  Quantize(m, factors, 0.25f, 0);
  const int32_t y = SetType<int16_t>(
      m,
      m.Node(OpType::kMUL, {x, factors}, {}, ElementwiseOptions{.activation = Activation::kRelu6}));
  Quantize(m, y, 0.25f, 0);
  m.Output(y);
  EXPECT_THAT(RunModel<int16_t>(m, std::vector<int16_t>{3, -5}),
              ::testing::ElementsAre(2, 0, 24, 0, 8, 0));
}

}  // namespace
}  // namespace atollrt
