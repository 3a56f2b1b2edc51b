// SPDX-License-Identifier: Apache-2.0
//
// What the conformance cases do not reach: wide elements, ellipses and new axes, high ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/allocation_meter.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// first, first + 1, ...
template <typename T>
std::vector<T> Ramp(int count, T first = 0) {
  std::vector<T> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

// ---- STRIDED_SLICE ------------------------------------------------------------------------------

struct StridedCase {
  const char* what;
  std::vector<int32_t> begin, end, strides;
  StridedSliceOptions options;
  Shape shape;                  // of the result
  std::vector<int32_t> values;  // of the result
};

// On [2, 3, 4] counted from 0. By NumPy: x[...], with None for a new axis.
const StridedCase kStrided[] = {
    {"x[..., 1]",
     {0, 1},
     {0, 2},
     {1, 1},
     {.ellipsis_mask = 1, .shrink_axis_mask = 2},
     {2, 3},
     {1, 5, 9, 13, 17, 21}},
    {"x[1, ...]",
     {1, 0},
     {2, 0},
     {1, 1},
     {.ellipsis_mask = 2, .shrink_axis_mask = 1},
     {3, 4},
     {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}},
    {"x[0:1, ..., 2:4]",
     {0, 0, 2},
     {1, 0, 4},
     {1, 1, 1},
     {.ellipsis_mask = 2},
     {1, 3, 2},
     {2, 3, 6, 7, 10, 11}},
    {"x[1, None, 2, ::3]",
     {1, 0, 2, 0},
     {2, 0, 3, 0},
     {1, 1, 1, 3},
     {.begin_mask = 8, .end_mask = 8, .new_axis_mask = 2, .shrink_axis_mask = 5},
     {1, 2},
     {20, 23}},
    {"x[None, ..., 3, None]",
     {0, 0, 3, 0},
     {0, 0, 4, 0},
     {1, 1, 1, 1},
     {.ellipsis_mask = 2, .new_axis_mask = 9, .shrink_axis_mask = 4},
     {1, 2, 3, 1},
     {3, 7, 11, 15, 19, 23}},
    {"an ellipsis of nothing",
     {0, 0, 1, 2},
     {0, 1, 2, 3},
     {1, 1, 1, 1},
     {.ellipsis_mask = 1, .shrink_axis_mask = 14},
     {},
     {6}},
    {"ends relative to begins",
     {1, 1, 1},
     {1, 2, 3},
     {1, 1, 2},
     {.offset = true},
     {1, 2, 2},
     {17, 19, 21, 23}},
    {"backwards", {1, -1}, {-3, 0}, {-1, -2}, {}, {2, 1, 4}, {20, 21, 22, 23, 8, 9, 10, 11}},
    {"nothing", {2}, {1}, {1}, {}, {0, 3, 4}, {}},
};

ModelBuilder StridedModel(const StridedCase& c) {
  ModelBuilder m;
  const int32_t count = static_cast<int32_t>(c.begin.size());
  m.Output(
      SetType<int32_t>(m, m.Node(OpType::kSTRIDED_SLICE,
                                 {TypedInput<int32_t>(m, {2, 3, 4}), m.Integers({count}, c.begin),
                                  m.Integers({count}, c.end), m.Integers({count}, c.strides)},
                                 {}, c.options)));
  return m;
}

TEST(StridedSlice, FollowsNumPy) {
  for (const StridedCase& c : kStrided) {
    SCOPED_TRACE(c.what);
    const ModelBuilder m = StridedModel(c);
    EXPECT_EQ(OutputShape(m), c.shape);
    EXPECT_THAT(RunModel<int32_t>(m, Ramp<int32_t>(24)), ElementsAreArray(c.values));
  }
}

TEST(StridedSlice, RefusesWhatHasNoMeaning) {
  EXPECT_THAT(WhyRefused(StridedModel({"", {0, 0}, {0, 0}, {1, 1}, {.ellipsis_mask = 3}, {}, {}}))
                  .message(),
              HasSubstr("2 ellipses"));
  EXPECT_THAT(
      WhyRefused(StridedModel({"", {2}, {3}, {1}, {.shrink_axis_mask = 1}, {}, {}})).message(),
      HasSubstr("dimension 0: index 2 of an axis of size 2"));
  EXPECT_THAT(
      WhyRefused(StridedModel({"", {1}, {0}, {-1}, {.shrink_axis_mask = 1}, {}, {}})).message(),
      HasSubstr("stride -1 of an axis that is dropped"));
  EXPECT_THAT(WhyRefused(StridedModel({"", {0, 0, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, 1}, {}, {}, {}}))
                  .message(),
              HasSubstr("slices of 4 axes of an input of shape [2, 3, 4]"));
}

TEST(StridedSlice, RefusesOperandsThatAreComputed) {
  ModelBuilder m;
  const int32_t x = m.Input({4});
  const int32_t begin = TypedInput<int32_t>(m, {1});
  m.Output(m.Node(OpType::kSTRIDED_SLICE, {x, begin, m.Integers({1}, {2}), m.Integers({1}, {1})},
                  {}, StridedSliceOptions{}));
  const Status status = WhyRefused(m);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("tensor 1 't1' is computed at run time"));
}

// ---- Types and ranks ----------------------------------------------------------------------------

template <typename T>
class Movers : public testing::Test {};
using ElementTypes = testing::Types<uint8_t, int16_t, int32_t, int64_t, float>;
TYPED_TEST_SUITE(Movers, ElementTypes);

TYPED_TEST(Movers, TransposeOfRankSix) {
  ModelBuilder m;
  const int32_t x = TypedInput<TypeParam>(m, {2, 1, 3, 2, 1, 2});
  m.Output(SetType<TypeParam>(
      m, m.Node(OpType::kTRANSPOSE, {x, m.Integers({6}, {5, 3, -4, 1, 4, 0})}, {})));
  EXPECT_THAT(OutputShape(m), ElementsAre(2, 2, 3, 1, 1, 2));
  std::vector<TypeParam> expected;
  for (int f = 0; f < 2; ++f) {
    for (int d = 0; d < 2; ++d) {
      for (int c = 0; c < 3; ++c) {
        for (int a = 0; a < 2; ++a) {
          expected.push_back(static_cast<TypeParam>(((a * 3 + c) * 2 + d) * 2 + f));
        }
      }
    }
  }
  EXPECT_EQ(RunModel<TypeParam>(m, Ramp<TypeParam>(24)), expected);
}

TYPED_TEST(Movers, PadIsZeroWithoutQuantization) {
  ModelBuilder m;
  const int32_t x = TypedInput<TypeParam>(m, {2});
  m.Output(SetType<TypeParam>(m, m.Pad(x, {1, 2})));
  EXPECT_THAT(RunModel<TypeParam>(m, Ramp<TypeParam>(2, 7)), ElementsAre(0, 7, 8, 0, 0));
}

TYPED_TEST(Movers, MirrorPad) {
  for (const MirrorPadMode mode : {MirrorPadMode::kReflect, MirrorPadMode::kSymmetric}) {
    ModelBuilder m;
    const int32_t x = TypedInput<TypeParam>(m, {2, 3});
    m.Output(
        SetType<TypeParam>(m, m.Node(OpType::kMIRROR_PAD, {x, m.Integers({2, 2}, {0, 1, 2, 1})}, {},
                                     MirrorPadOptions{.mode = mode})));
    const auto y = RunModel<TypeParam>(m, Ramp<TypeParam>(6, 1));
    if (mode == MirrorPadMode::kReflect) {
      EXPECT_THAT(y, ElementsAre(3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5, 3, 2, 1, 2, 3, 2));
    } else {
      EXPECT_THAT(y, ElementsAre(2, 1, 1, 2, 3, 3, 5, 4, 4, 5, 6, 6, 5, 4, 4, 5, 6, 6));
    }
  }
}

TYPED_TEST(Movers, SplitAlongTheMiddle) {
  ModelBuilder m;
  const int32_t x = TypedInput<TypeParam>(m, {2, 4});
  const int32_t first = SetType<TypeParam>(
      m, m.Node(OpType::kSPLIT, {m.Integers({}, {1}), x}, {}, SplitOptions{.num_splits = 2}));
  const int32_t second = SetType<TypeParam>(m, m.Activation({}));
  m.graph().nodes.back().outputs.push_back(second);
  m.Output(second);
  m.Output(first);
  EXPECT_THAT(RunModel<TypeParam>(m, Ramp<TypeParam>(8)), ElementsAre(2, 3, 6, 7));
}

TEST(Pad, FillsInt16WithItsZeroPoint) {
  ModelBuilder m;
  const int32_t x = TypedInput<int16_t>(m, {1});
  const int32_t y = SetType<int16_t>(m, m.Pad(x, {1, 1}));
  Quantize(m, x, 0.5f, -300);
  Quantize(m, y, 0.5f, -300);
  m.Output(y);
  EXPECT_THAT(RunModel<int16_t>(m, std::vector<int16_t>{5}), ElementsAre(-300, 5, -300));
}

TEST(PadV2, RefusesAValueOfAnotherQuantization) {
  ModelBuilder m;
  const int32_t value = m.Constant(DataType::kInt8, {}, {3});
  Quantize(m, value, 0.5f, 0);
  m.Output(m.Node(OpType::kPADV2, {m.Input({2}), m.Integers({1, 2}, {1, 1}), value}, {}));
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("has scale 0.5 and zero point 0, the output"));
}

TEST(Movers, RefuseToChangeTheType) {
  ModelBuilder m;
  m.Output(SetType<int32_t>(m, m.Node(OpType::kTILE, {m.Input({2}), m.Integers({1}, {2})}, {})));
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("they must be the same"));
}

TEST(Tile, GivesNothingForNoRepetition) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kTILE, {m.Input({2, 3}), m.Integers({2}, {2, 0})}, {}));
  EXPECT_THAT(OutputShape(m), ElementsAre(4, 0));
  EXPECT_THAT(RunModel<int8_t>(m, Ramp<int8_t>(6)), IsEmpty());
}

TEST(SpaceToBatch, TakesBlocksOfOneDimension) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kSPACE_TO_BATCH_ND,
                  {m.Input({1, 3, 2}), m.Integers({1}, {2}), m.Integers({1, 2}, {1, 0})}, {}));
  EXPECT_THAT(OutputShape(m), ElementsAre(2, 2, 2));
  // Padded with the zero point -3: [-3 -3 | 1 2 | 3 4 | 5 6].
  EXPECT_THAT(RunModel<int8_t>(m, Ramp<int8_t>(6, 1)), ElementsAre(-3, -3, 3, 4, 1, 2, 5, 6));
}

TEST(SpaceToBatch, RefusesHugeBlocks) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kSPACE_TO_BATCH_ND,
                  {m.Input({1, 1, 1, 1}), m.Integers({2}, {INT32_MAX, INT32_MAX}),
                   m.Integers({2, 2}, {0, INT32_MAX - 1, 0, INT32_MAX - 1})},
                  {}));
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("blocks of"));
}

// Of an empty batch, the image that is cropped could be larger than what 32 bits count.
TEST(BatchToSpace, RefusesImagesThatAreTooLargeBeforeTheyAreCropped) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kBATCH_TO_SPACE_ND,
                  {m.Input({0, 1 << 16, 1, 1}), m.Integers({2}, {1 << 16, 1}),
                   m.Integers({2, 2}, {INT32_MAX, INT32_MAX, 0, 0})},
                  {}));
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("size 4294967296 of dimension 1"));
}

// Each dimension triples the parts.
TEST(MirrorPad, RefusesBordersOfManyDimensions) {
  for (const int32_t rank : {6, 14}) {
    ModelBuilder m;
    const Shape shape(static_cast<size_t>(rank), 1);
    const std::vector<int32_t> ones(static_cast<size_t>(2 * rank), 1);
    m.Output(m.Node(OpType::kMIRROR_PAD, {m.Input(shape), m.Integers({rank, 2}, ones)}, {},
                    MirrorPadOptions{.mode = MirrorPadMode::kSymmetric}));
    const AllocationMeter meter;
    const auto interpreter = Interpreter::Create(m.Load(), {.threads = 1});
    EXPECT_LT(meter.peak_bytes(), int64_t{4} << 20);
    EXPECT_EQ(interpreter.status().code(),
              rank == 6 ? StatusCode::kOk : StatusCode::kResourceExhausted);
    if (rank > 6) continue;
    EXPECT_THAT(RunModel<int8_t>(m, std::vector<int8_t>{5}), testing::Each(5));
  }
}

TEST(ShapeOperator, GivesTheShapeAsEitherInteger) {
  ModelBuilder narrow;
  narrow.Output(SetType<int32_t>(narrow, narrow.Node(OpType::kSHAPE, {narrow.Input({2, 3})}, {})));
  EXPECT_THAT(RunModel<int32_t>(narrow, Ramp<int8_t>(6)), ElementsAre(2, 3));
  ModelBuilder wide;
  wide.Output(SetType<int64_t>(wide, wide.Node(OpType::kSHAPE, {wide.Input({2, 3})}, {})));
  EXPECT_THAT(RunModel<int64_t>(wide, Ramp<int8_t>(6)), ElementsAre(2, 3));
}

}  // namespace
}  // namespace atollrt
