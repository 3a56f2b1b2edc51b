// SPDX-License-Identifier: Apache-2.0
//
// Formats and values that the conformance cases do not reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/kernels/quantization/quantization.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Format {
  float scale = 1;
  int32_t zero_point = 0;
};

template <typename Out, typename In>
std::vector<Out> Requantized(Format from, Format to, const std::vector<In>& values) {
  ModelBuilder m;
  const int32_t x = TypedInput<In>(m, {static_cast<int32_t>(values.size())});
  const int32_t y = SetType<Out>(m, m.Node(OpType::kQUANTIZE, {x}, {}));
  if (!std::is_same_v<In, float>) Quantize(m, x, from.scale, from.zero_point);
  Quantize(m, y, to.scale, to.zero_point);
  m.Output(y);
  return RunModel<Out>(m, values);
}

TEST(QuantizeOperator, TakesInt16AndInt32BothWays) {
  EXPECT_THAT((Requantized<int8_t>({0.01f}, {0.5f, 3}, std::vector<int16_t>{-32768, 0, 100, 1000})),
              ElementsAre(-128, 3, 5, 23));
  EXPECT_THAT((Requantized<int16_t>({0.5f, 128}, {0.25f}, std::vector<uint8_t>{0, 128, 255})),
              ElementsAre(-256, 0, 254));
  EXPECT_THAT((Requantized<int32_t>({0.5f}, {0.125f}, std::vector<int16_t>{-32768, 3, 32767})),
              ElementsAre(-131072, 12, 131068));
  // The doubling multiplication rounds halves up.
  EXPECT_THAT((Requantized<int16_t>({0.5f}, {1}, std::vector<int32_t>{-70001, -3, 3, 70001})),
              ElementsAre(-32768, -1, 2, 32767));
}

TEST(QuantizeOperator, EqualsTheFormulaFromInt16) {
  Rng rng(TestSeed(7));
  std::vector<int16_t> values(500);
  for (int16_t& value : values) value = static_cast<int16_t>(rng.Int(-32768, 32767));
  const float from = 0.0037f;
  const float to = 0.0113f;
  const Multiplier multiplier =
      QuantizeMultiplier(static_cast<double>(from) / static_cast<double>(to));
  std::vector<int16_t> expected;
  for (const int16_t value : values) {
    expected.push_back(static_cast<int16_t>(MultiplyByQuantizedMultiplier(value, multiplier)));
  }
  EXPECT_EQ((Requantized<int16_t>({from}, {to}, values)), expected);
}

TEST(QuantizeOperator, TakesFloatToInt16) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(
      (Requantized<int16_t>({}, {0.5f}, std::vector<float>{0.25f, -0.25f, 1e9f, -1e9f, nan})),
      ElementsAre(1, -1, 32767, -32768, -32768));
}

TEST(QuantizeOperator, RefusesFloatToInt32) {
  ModelBuilder m;
  m.Output(SetType<int32_t>(m, m.Node(OpType::kQUANTIZE, {TypedInput<float>(m, {1})}, {})));
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("from float32 to int32"));
}

TEST(DequantizeOperator, TakesInt16) {
  ModelBuilder m;
  const int32_t x = TypedInput<int16_t>(m, {3});
  Quantize(m, x, 0.1f, 2);
  m.Output(SetType<float>(m, m.Node(OpType::kDEQUANTIZE, {x}, {})));
  const double scale = 0.1f;
  EXPECT_THAT(
      RunModel<float>(m, std::vector<int16_t>{-32768, 2, 32767}),
      ElementsAre(static_cast<float>(-32770 * scale), 0.0f, static_cast<float>(32765 * scale)));
}

TEST(DequantizeOperator, TakesOneScalePerChannel) {
  ModelBuilder m;
  const int32_t x = m.Input({2, 3, 2});
  m.tensor(x).quantization = {.scales = {1, 2, 4}, .zero_points = {0, 1, 0}, .dimension = 1};
  m.Output(SetType<float>(m, m.Node(OpType::kDEQUANTIZE, {x}, {})));
  EXPECT_THAT(RunModel<float>(m, std::vector<int8_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
              ElementsAre(1, 2, 4, 6, 20, 24, 7, 8, 16, 18, 44, 48));
}

template <typename Out, typename In>
std::vector<Out> CastTo(const std::vector<In>& values) {
  ModelBuilder m;
  m.Output(SetType<Out>(
      m, m.Node(OpType::kCAST, {TypedInput<In>(m, {static_cast<int32_t>(values.size())})}, {})));
  return RunModel<Out>(m, values);
}

TEST(CastOperator, SaturatesFloats) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(CastTo<uint8_t>(std::vector<float>{-1.5f, -0.5f, 1.9f, 255.9f, 256, inf, nan}),
              ElementsAre(0, 0, 1, 255, 255, 255, 0));
  EXPECT_THAT(CastTo<int32_t>(std::vector<float>{-1.9f, 2147483648.0f, -inf, 2147483520.0f}),
              ElementsAre(-1, INT32_MAX, INT32_MIN, 2147483520));
  EXPECT_THAT(CastTo<int64_t>(std::vector<float>{inf, -inf, 9.5e18f, 1e18f}),
              ElementsAre(INT64_MAX, INT64_MIN, INT64_MAX, 999999984306749440));
  EXPECT_THAT(CastTo<uint8_t>(std::vector<float>{3}), ElementsAre(3));
}

TEST(CastOperator, WrapsIntegers) {
  EXPECT_THAT(CastTo<int8_t>(std::vector<int64_t>{300, -129, INT64_MIN}), ElementsAre(44, 127, 0));
  EXPECT_THAT(CastTo<float>(std::vector<int64_t>{16777217, 16777219, -3}),
              ElementsAre(16777216.0f, 16777220.0f, -3.0f));
}

TEST(CastOperator, CountsEverythingButZeroAsTrue) {
  ModelBuilder m;
  const int32_t truth = SetType<bool>(m, m.Node(OpType::kCAST, {TypedInput<float>(m, {4})}, {}));
  m.Output(SetType<int16_t>(m, m.Node(OpType::kCAST, {truth}, {})));
  EXPECT_THAT(RunModel<int16_t>(m, std::vector<float>{0, -0.0f, 0.25f, -7}),
              ElementsAre(0, 0, 1, 1));
}

}  // namespace
}  // namespace atollrt
