// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/bytes.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rows of a [3, 2] constant at the indices that are the model's input.
ModelBuilder RowsAt(OpType type, Shape indices) {
  ModelBuilder m;
  const int32_t index = TypedInput<int32_t>(m, std::move(indices));
  const int32_t data = m.Integers({3, 2}, {10, 11, 20, 21, 30, 31});
  const OpOptions options = type == OpType::kGATHER ? OpOptions(AxisOptions{}) : OpOptions();
  m.Output(SetType<int32_t>(m, m.Node(type, {data, index}, {}, options)));
  return m;
}

TEST(Gather, TakesComputedIndices) {
  EXPECT_THAT(RunModel<int32_t>(RowsAt(OpType::kGATHER, {2}), std::vector<int32_t>{2, 0}),
              ElementsAre(30, 31, 10, 11));
}

TEST(Gather, FailsInInvokeForIndicesOutOfRange) {
  for (const int32_t index : {-1, 3, INT32_MAX, INT32_MIN}) {
    const ModelBuilder m = RowsAt(OpType::kGATHER, {2});
    const auto interpreter = Prepare(m);
    ASSERT_NE(interpreter, nullptr);
    StoreLittleEndian<int32_t>(interpreter->TensorBytes(m.graph().inputs[0]).data() + 4, index);
    const Status status = interpreter->Invoke();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "node 0 (GATHER) 't2': tensor 0 't0': index " +
                                    std::to_string(index) + " at position 1 is outside [0, 3)");
  }
}

TEST(Gather, TakesBatchesFromTheEnd) {
  ModelBuilder m;
  const int32_t data = TypedInput<int32_t>(m, {2, 3});
  const int32_t indices = m.Integers({2, 2}, {0, 2, 1, 1});
  m.Output(SetType<int32_t>(
      m, m.Node(OpType::kGATHER, {data, indices}, {}, AxisOptions{.axis = 1, .count = -1})));
  EXPECT_THAT(RunModel<int32_t>(m, std::vector<int32_t>{1, 2, 3, 4, 5, 6}),
              ElementsAre(1, 3, 5, 5));
}

TEST(Gather, RefusesBatchesBehindTheAxis) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kGATHER, {m.Input({2, 3}), m.Integers({2, 2}, {0, 0, 0, 0})}, {},
                  AxisOptions{.axis = 0, .count = 1}));
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("batch_dims 1 with axis 0"));
}

TEST(GatherNd, AddressesElementsAndSlices) {
  EXPECT_THAT(
      RunModel<int32_t>(RowsAt(OpType::kGATHER_ND, {2, 2}), std::vector<int32_t>{2, 1, 0, 0}),
      ElementsAre(31, 10));
  EXPECT_THAT(RunModel<int32_t>(RowsAt(OpType::kGATHER_ND, {2, 1}), std::vector<int32_t>{1, 0}),
              ElementsAre(20, 21, 10, 11));
}

TEST(GatherNd, ChecksEachCoordinate) {
  const ModelBuilder m = RowsAt(OpType::kGATHER_ND, {1, 2});
  const auto interpreter = Prepare(m);
  ASSERT_NE(interpreter, nullptr);
  StoreLittleEndian<int32_t>(interpreter->TensorBytes(m.graph().inputs[0]).data(), 2);
  StoreLittleEndian<int32_t>(interpreter->TensorBytes(m.graph().inputs[0]).data() + 4, 2);
  EXPECT_THAT(interpreter->Invoke().message(),
              HasSubstr("index 2 at position 1 is outside [0, 2)"));
}

TEST(GatherNd, RefusesConstantsOutOfRange) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kGATHER_ND, {m.Input({2, 3}), m.Integers({1, 2}, {0, -1})}, {}));
  const Status status = WhyRefused(m);
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(status.message(), HasSubstr("index -1 at position 1 is outside [0, 3)"));
}

TEST(GatherNd, RefusesMoreCoordinatesThanDimensions) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kGATHER_ND, {m.Input({2, 3}), m.Integers({1, 3}, {0, 0, 0})}, {}));
  EXPECT_THAT(WhyRefused(m).message(),
              HasSubstr("indices of shape [1, 3] do not address shape [2, 3]"));
}

}  // namespace
}  // namespace atollrt
