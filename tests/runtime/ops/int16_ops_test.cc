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
  EXPECT_THAT(WhyNot(OpType::kTANH, {4}, {0.01f, 3}, kUnit), HasSubstr("zero point 3"));
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
    for (const float scale : {2.67f, 1e30f}) {
      EXPECT_THAT(WhyNot(type, {4}, {scale}, kUnit), HasSubstr("at most 2.6665"));
    }
  }
  EXPECT_THAT(WhyNot(OpType::kSOFTMAX, {1, 65537}, {0.01f}, kUnit, SoftmaxOptions()),
              HasSubstr("rows of 65537"));
  EXPECT_THAT(WhyNot(OpType::kSOFTMAX, {4}, {0.5f}, kUnit, SoftmaxOptions{.beta = 9}),
              HasSubstr("scale 0.5 times beta 9"));
  constexpr float kEndless = std::numeric_limits<float>::infinity();
  for (const float beta : {0.0f, -1.0f, kEndless, kEndless - kEndless}) {
    EXPECT_THAT(WhyNot(OpType::kSOFTMAX, {4}, {0.5f}, kUnit, SoftmaxOptions{.beta = beta}),
                HasSubstr("beta"));
  }
}

}  // namespace
}  // namespace atollrt
