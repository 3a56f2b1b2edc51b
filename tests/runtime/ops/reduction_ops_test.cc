// SPDX-License-Identifier: Apache-2.0
//
// Types and axes that the conformance cases do not reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `type` of [2, 3] over `axes`, all of one type and not quantized.
template <typename T>
std::vector<T> Reduced(OpType type, const std::vector<int32_t>& axes,
                       const std::vector<T>& values) {
  ModelBuilder m;
  const int32_t list = m.Integers({static_cast<int32_t>(axes.size())}, axes);
  m.Output(SetType<T>(m, m.Node(type, {TypedInput<T>(m, {2, 3}), list}, {}, ReducerOptions{})));
  return RunModel<T>(m, values);
}

TEST(Reductions, TakeAllIntegers) {
  const std::vector<int64_t> wide{INT64_MAX, 1, 5, -4, INT64_MIN, 9};
  EXPECT_THAT(Reduced<int64_t>(OpType::kREDUCE_MAX, {0}, wide), ElementsAre(INT64_MAX, 1, 9));
  EXPECT_THAT(Reduced<int64_t>(OpType::kREDUCE_MIN, {1}, wide), ElementsAre(1, INT64_MIN));
  EXPECT_THAT(Reduced<int16_t>(OpType::kREDUCE_MIN, {0, 1}, {5, 3, -2, 8, 300, -301}),
              ElementsAre(-301));
  EXPECT_THAT(Reduced<int32_t>(OpType::kSUM, {1}, {INT32_MAX, 1, 0, 1, 2, 3}),
              ElementsAre(INT32_MIN, 6));
  EXPECT_THAT(Reduced<int32_t>(OpType::kMEAN, {1}, {-1, -1, -3, 1, 2, 5}), ElementsAre(-1, 2));
  EXPECT_THAT(Reduced<int32_t>(OpType::kMEAN, {1}, {INT32_MAX, INT32_MAX, INT32_MAX, 0, 0, 1}),
              ElementsAre(INT32_MAX, 0));
}

TEST(Reductions, TakeFloats) {
  EXPECT_THAT(Reduced<float>(OpType::kSUM, {0}, {1, 2, 3, 0.5f, 0.25f, -3}),
              ElementsAre(1.5f, 2.25f, 0.0f));
  EXPECT_THAT(Reduced<float>(OpType::kMEAN, {-1}, {1, 2, 6, -1, -1, -4}), ElementsAre(3, -2));
  EXPECT_THAT(Reduced<float>(OpType::kREDUCE_MAX, {1}, {-5, -2, -6, 0, 7, 1}), ElementsAre(-2, 7));
}

TEST(Reductions, CopyWhenThereAreNoAxes) {
  EXPECT_THAT(Reduced<float>(OpType::kREDUCE_MIN, {}, {1, 2, 3, 4, 5, 6}),
              ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Reductions, RescaleInt16) {
  for (const OpType type : {OpType::kMEAN, OpType::kSUM}) {
    ModelBuilder m;
    const int32_t x = TypedInput<int16_t>(m, {2, 4});
    const int32_t y =
        SetType<int16_t>(m, m.Node(type, {x, m.Integers({1}, {1})}, {}, ReducerOptions{}));
    Quantize(m, x, 0.5f, 0);
    Quantize(m, y, 0.25f, 0);
    m.Output(y);
    const auto result =
        RunModel<int16_t>(m, std::vector<int16_t>{1, 2, 3, 4, -9000, -9000, -9000, -9000});
    if (type == OpType::kMEAN) {
      EXPECT_THAT(result, ElementsAre(5, -18000));
    } else {
      EXPECT_THAT(result, ElementsAre(20, -32768));
    }
  }
}

// The reference kernels of TensorFlow Lite read int8 as uint8 here; the formula is that of uint8.
TEST(Reductions, SumInt8) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 3});
  const int32_t y = m.Node(OpType::kSUM, {x, m.Integers({1}, {1})}, {}, ReducerOptions{});
  Quantize(m, x, 0.5f, -1);
  Quantize(m, y, 1.0f, 10);
  m.Output(y);
  // (-4 + 6 + 6 + 3) / 2 + 10, halves away from zero.
  EXPECT_THAT(RunModel<int8_t>(m, std::vector<int8_t>{-4, 6, 6}), ElementsAre(16));
}

TEST(Reductions, RefuseExtremesOfAnotherQuantization) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 3});
  const int32_t y = m.Node(OpType::kREDUCE_MAX, {x, m.Integers({1}, {1})}, {}, ReducerOptions{});
  Quantize(m, y, 1.0f, 10);
  m.Output(y);
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("must be quantized alike"));
}

TEST(ArgMin, TakesWideIntegers) {
  ModelBuilder m;
  const int32_t x = TypedInput<int64_t>(m, {2, 2});
  m.Output(SetType<int32_t>(m, m.Node(OpType::kARG_MIN, {x, m.Integers({}, {0})}, {})));
  EXPECT_THAT(RunModel<int32_t>(m, std::vector<int64_t>{INT64_MIN, 5, INT64_MIN, 4}),
              ElementsAre(0, 1));
}

TEST(ArgMax, RefusesOtherOutputs) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kARG_MAX, {m.Input({2, 2}), m.Integers({}, {0})}, {}));
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("output has type int8, must be int32 or int64"));
}

}  // namespace
}  // namespace atollrt
