// SPDX-License-Identifier: Apache-2.0
//
// Sizes that converters write as computations are known when the model is loaded.
#include "runtime/graph/constant_folding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A node of T, by default of int32; files store no shape for it.
template <typename T = int32_t>
int32_t Compute(ModelBuilder& m, OpType type, std::vector<int32_t> inputs, OpOptions options = {}) {
  return SetType<T>(m, m.Node(type, std::move(inputs), {}, std::move(options)));
}

int32_t ShapeOf(ModelBuilder& m, int32_t x) { return Compute(m, OpType::kSHAPE, {x}); }

// values[index]
int32_t Element(ModelBuilder& m, int32_t values, int32_t index) {
  return Compute(
      m, OpType::kSTRIDED_SLICE,
      {values, m.Integers({1}, {index}), m.Integers({1}, {index + 1}), m.Integers({1}, {1})},
      StridedSliceOptions{.shrink_axis_mask = 1});
}

int32_t Scalar(ModelBuilder& m, int32_t value) { return m.Integers({}, {value}); }

int32_t Pack(ModelBuilder& m, std::vector<int32_t> parts) {
  const int32_t count = static_cast<int32_t>(parts.size());
  return Compute(m, OpType::kPACK, std::move(parts), AxisOptions{.axis = 0, .count = count});
}

// RESHAPE whose target is a tensor.
int32_t ReshapeTo(ModelBuilder& m, int32_t x, int32_t target) {
  return m.Node(OpType::kRESHAPE, {x, target}, {});
}

std::vector<OpType> Operators(const ModelBuilder& m) {
  std::vector<OpType> types;
  const std::shared_ptr<const Model> model = m.Load();
  if (model == nullptr) return types;
  for (const Node& node : model->graph().nodes) types.push_back(node.type);
  return types;
}

TEST(ConstantFolding, ReshapesByTheBatchOfTheInput) {
  ModelBuilder m;
  const int32_t x = m.Input({2, 3, 4});
  m.Output(ReshapeTo(m, x, Pack(m, {Element(m, ShapeOf(m, x), 0), Scalar(m, -1)})));
  EXPECT_THAT(OutputShape(m), ElementsAre(2, 12));
  EXPECT_THAT(Operators(m), ElementsAre(OpType::kRESHAPE));
  std::vector<int8_t> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int8_t>(i);
  EXPECT_EQ(RunModel<int8_t>(m, values), values);
}

TEST(ConstantFolding, ComputesWithShapes) {
  ModelBuilder m;
  const int32_t x = m.Input({2, 6, 10, 4});
  const int32_t shape = ShapeOf(m, x);
  const int32_t h = Element(m, shape, 1);
  const int32_t w = Element(m, shape, 2);
  const int32_t product = Compute(m, OpType::kMUL, {h, w}, ElementwiseOptions{});             // 60
  const int32_t half = Compute(m, OpType::kFLOOR_DIV, {product, Scalar(m, 2)});               // 30
  const int32_t less = Compute(m, OpType::kSUB, {half, h}, ElementwiseOptions{});             // 24
  const int32_t more = Compute(m, OpType::kMAXIMUM, {less, Scalar(m, 40)});                   // 40
  const int32_t rest = Compute(m, OpType::kADD, {more, Scalar(m, 8)}, ElementwiseOptions{});  // 48
  const int32_t last = Compute(m, OpType::kGATHER, {shape, m.Integers({1}, {0})}, AxisOptions{});
  const int32_t target =
      Compute(m, OpType::kCONCATENATION, {last, Pack(m, {rest}), m.Integers({1}, {-1})},
              AxisOptions{.axis = 0});
  m.Output(ReshapeTo(m, x, target));
  EXPECT_THAT(OutputShape(m), ElementsAre(2, 48, 5));
  EXPECT_THAT(Operators(m), ElementsAre(OpType::kRESHAPE));
}

TEST(ConstantFolding, GoesOnBehindWhatItMadePossible) {
  ModelBuilder m;
  const int32_t x = m.Input({4, 6});
  const int32_t y =
      ReshapeTo(m, x, Pack(m, {Scalar(m, 3), Element(m, ShapeOf(m, x), 0), Scalar(m, -1)}));
  const int32_t z = ReshapeTo(m, y, Pack(m, {Scalar(m, -1), Element(m, ShapeOf(m, y), 2)}));
  m.Output(z);
  EXPECT_THAT(OutputShape(m), ElementsAre(12, 2));
}

// tf.cast(tf.cast(tf.shape(x)[1:3], tf.float32) * 1.5, tf.int32)
TEST(ConstantFolding, ComputesWithFractions) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4, 6, 3});
  const int32_t size =
      Compute(m, OpType::kSLICE, {ShapeOf(m, x), m.Integers({1}, {1}), m.Integers({1}, {2})});
  const float factor = 1.5f;
  std::vector<uint8_t> bytes(4);
  std::memcpy(bytes.data(), &factor, 4);
  const int32_t scaled = Compute<float>(
      m, OpType::kMUL,
      {Compute<float>(m, OpType::kCAST, {size}), m.Constant(DataType::kFloat32, {}, bytes)},
      ElementwiseOptions{});
  m.Output(m.Node(OpType::kRESIZE_NEAREST_NEIGHBOR, {x, Compute(m, OpType::kCAST, {scaled})}, {}));
  EXPECT_THAT(OutputShape(m), ElementsAre(1, 6, 9, 3));
}

TEST(ConstantFolding, PadsBySizesOf64Bits) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 3});
  const int32_t shape = Compute<int64_t>(m, OpType::kSHAPE, {x});
  const int32_t paddings =
      Compute<int64_t>(m, OpType::kPACK, {shape, shape}, AxisOptions{.axis = 0, .count = 2});
  m.Output(m.Node(OpType::kPAD, {x, paddings}, {}));
  EXPECT_THAT(OutputShape(m), ElementsAre(1 + 1 + 3, 1 + 3 + 3));
}

TEST(ConstantFolding, MayLeaveAnOutputThatIsAConstant) {
  ModelBuilder m;
  m.Output(ShapeOf(m, m.Input({2, 3})));
  EXPECT_THAT(Operators(m), SizeIs(0));
  EXPECT_THAT((RunModel<int32_t, int8_t>(m, std::vector<int8_t>(6))), ElementsAre(2, 3));
}

TEST(ConstantFolding, KeepsWhatIsComputedFromData) {
  ModelBuilder m;
  const int32_t x = TypedInput<int32_t>(m, {2});
  m.Output(Compute(m, OpType::kADD, {x, m.Integers({2}, {1, 2})}, ElementwiseOptions{}));
  EXPECT_THAT(Operators(m), ElementsAre(OpType::kADD));
  ModelBuilder target;
  const int32_t y = target.Input({2, 3});
  target.Output(ReshapeTo(target, y, TypedInput<int32_t>(target, {2})));
  EXPECT_THAT(std::string(WhyRefused(target).message()), HasSubstr("is computed at run time"));
}

TEST(ConstantFolding, KeepsQuantizedTensorsAndLargeOnes) {
  ModelBuilder m;
  m.Input({1});
  const int32_t bytes = m.Constant(DataType::kInt8, {2}, {1, 2});
  Quantize(m, bytes, 0.5f, 0);
  m.Output(Compute<float>(m, OpType::kDEQUANTIZE, {bytes}));
  const int32_t many = static_cast<int32_t>(kMaxFoldedBytes / 4);
  m.Output(Compute(m, OpType::kTILE, {m.Integers({1}, {7}), m.Integers({1}, {many})}));
  m.Output(Compute(m, OpType::kTILE, {m.Integers({1}, {7}), m.Integers({1}, {many + 1})}));
  EXPECT_THAT(Operators(m), ElementsAre(OpType::kDEQUANTIZE, OpType::kTILE));
}

// What an operator refuses is refused in the same words as if it were not constant.
TEST(ConstantFolding, LeavesErrorsToTheOperator) {
  ModelBuilder divide;
  const int32_t x = divide.Input({4});
  divide.Output(
      Compute(divide, OpType::kFLOOR_DIV, {ShapeOf(divide, x), divide.Integers({1}, {0})}));
  EXPECT_THAT(Operators(divide), ElementsAre(OpType::kFLOOR_DIV));
  EXPECT_EQ(Prepare(divide)->Invoke().code(), StatusCode::kInvalidArgument);

  ModelBuilder gather;
  gather.Input({1});
  gather.Output(Compute(gather, OpType::kGATHER,
                        {gather.Integers({2}, {1, 2}), gather.Integers({1}, {2})}, AxisOptions{}));
  EXPECT_THAT(std::string(WhyRefused(gather).message()),
              HasSubstr("index 2 at position 0 is outside [0, 2)"));
}

// The shape that the file stores behind an operator without a rule is not to be believed.
TEST(ConstantFolding, DoesNotTrustShapesBehindUnknownOperators) {
  ModelBuilder m;
  m.Output(ShapeOf(m, m.Custom("Unheard", m.Input({2, 3}))));
  EXPECT_THAT(Operators(m), ElementsAre(OpType::kCUSTOM, OpType::kSHAPE));
}

}  // namespace
}  // namespace atollrt
