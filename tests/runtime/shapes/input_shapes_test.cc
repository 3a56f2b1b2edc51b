// SPDX-License-Identifier: Apache-2.0
//
// Models loaded with other shapes of inputs than those in the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tflite/tflite_loader.h"
#include "tests/support/harmless.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

// Convolutions and a head that takes images of any size.
ModelBuilder AnySize(Shape stored = {1, 8, 8, 3}) {
  ModelBuilder m;
  const int32_t x = m.Input(std::move(stored));
  m.tensor(x).name = "image";
  const int32_t y = m.Conv2D(x, {.channels = 4, .kernel = 3, .stride = 2});
  m.Output(m.Mean(m.DepthwiseConv2D(y, {.kernel = 3}), {1, 2}));
  m.Output(y);
  return m;
}

Status Refusal(const Bytes& file, const std::vector<InputShape>& shapes) {
  const auto model = Model::FromBuffer(file, shapes);
  EXPECT_FALSE(model.ok());
  return model.status();
}

std::string Message(const Bytes& file, const InputShape& shape, StatusCode code) {
  const Status status = Refusal(file, {shape});
  EXPECT_EQ(status.code(), code) << status.message();
  return status.message();
}

TEST(InputShapes, AllOthersFollow) {
  const Bytes file = AnySize().Build();
  for (const InputShape& shape :
       {InputShape{.shape = {2, 13, 7, 3}}, InputShape{.name = "image", .shape = {2, 13, 7, 3}},
        InputShape{.index = 0, .shape = {2, 13, 7, 3}}}) {
    const auto model = Model::FromBuffer(file, std::vector{shape});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Graph& graph = (*model)->graph();
    EXPECT_EQ(graph.tensors[graph.inputs[0]].shape, (Shape{2, 13, 7, 3}));
    EXPECT_EQ(graph.tensors[graph.outputs[1]].shape, (Shape{2, 7, 4, 4}));
    EXPECT_EQ(graph.tensors[graph.outputs[0]].shape, (Shape{2, 1, 1, 4}));
  }
}

TEST(InputShapes, TwoSizesAreHeightAndWidth) {
  const auto model =
      Model::FromBuffer(AnySize({5, 8, 8, 3}).Build(), std::vector<InputShape>{{.shape = {9, 4}}});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->graph().tensors[(*model)->graph().inputs[0]].shape, (Shape{5, 9, 4, 3}));

  ModelBuilder gray;
  gray.Output(gray.Relu(gray.Input({1, 6, 6})));
  const auto plane = Model::FromBuffer(gray.Build(), std::vector<InputShape>{{.shape = {9, 4}}});
  ASSERT_TRUE(plane.ok()) << plane.status().message();
  EXPECT_EQ((*plane)->graph().tensors[(*plane)->graph().inputs[0]].shape, (Shape{1, 9, 4}));

  ModelBuilder matrix;
  matrix.Output(matrix.Relu(matrix.Input({1, 6})));
  const auto wide = Model::FromBuffer(matrix.Build(), std::vector<InputShape>{{.shape = {9, 4}}});
  ASSERT_TRUE(wide.ok()) << wide.status().message();
  EXPECT_EQ((*wide)->graph().tensors[(*wide)->graph().inputs[0]].shape, (Shape{9, 4}));
}

TEST(InputShapes, MakeDynamicOnesFixed) {
  ModelBuilder m = AnySize();
  m.tensor(m.graph().inputs[0]).shape = {-1, -1, -1, 3};
  const Bytes file = m.Build();
  EXPECT_THAT(Refusal(file, {}).message(),
              AllOf(HasSubstr("[-1, -1, -1, 3]"), HasSubstr("give this input a shape")));
  // The batch stays as it is.
  EXPECT_THAT(Message(file, {.shape = {8, 8}}, StatusCode::kUnsupported),
              HasSubstr("[-1, 8, 8, 3]"));
  EXPECT_TRUE(Model::FromBuffer(file, std::vector<InputShape>{{.shape = {1, 8, 8, 3}}}).ok());
}

// What is computed from shapes follows, too.
TEST(InputShapes, FoldedConstantsFollow) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4, 6, 2});
  const int32_t shape = SetType<int32_t>(m, m.Node(OpType::kSHAPE, {x}, {4}));
  const int32_t sizes = SetType<int32_t>(
      m, m.Node(OpType::kSLICE, {shape, m.Integers({1}, {1}), m.Integers({1}, {2})}, {2}));
  const int32_t small = m.MaxPool(x, {});
  m.Output(m.Node(OpType::kRESIZE_NEAREST_NEIGHBOR, {small, sizes}, {1, 4, 6, 2}, ResizeOptions{}));
  const auto model = Model::FromBuffer(m.Build(), std::vector<InputShape>{{.shape = {10, 8}}});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->graph().tensors[(*model)->graph().outputs[0]].shape, (Shape{1, 10, 8, 2}));
}

TEST(InputShapes, TheStoredOnesChangeNothing) {
  const ModelBuilder m = AnySize();
  const Bytes file = m.Build();
  std::vector<Bytes> outputs;
  for (const auto& shapes :
       {std::vector<InputShape>{}, std::vector<InputShape>{{.shape = {1, 8, 8, 3}}}}) {
    auto model = Model::FromBuffer(file, shapes);
    ASSERT_TRUE(model.ok()) << model.status().message();
    auto interpreter = Interpreter::Create(*model, {.threads = 1});
    ASSERT_TRUE(interpreter.ok());
    Rng(7).Fill((*interpreter)->TensorBytes(m.graph().inputs[0]));
    ASSERT_TRUE((*interpreter)->Invoke().ok());
    for (const int32_t output : m.graph().outputs) {
      const std::span<const uint8_t> bytes = (*interpreter)->ConstTensorBytes(output);
      outputs.emplace_back(bytes.begin(), bytes.end());
    }
  }
  EXPECT_EQ(outputs[0], outputs[2]);
  EXPECT_EQ(outputs[1], outputs[3]);
}

TEST(InputShapes, InputsThatAreNotThereAreListed) {
  ModelBuilder m;
  const int32_t a = m.Input({1, 2});
  const int32_t b = m.Input({1, 3});
  m.tensor(a).name = "first";
  m.tensor(b).name = "second";
  m.Output(m.Relu(a));
  m.Output(m.Relu(b));
  const Bytes file = m.Build();
  const auto inputs = HasSubstr("there are: 0 'first' [1, 2], 1 'second' [1, 3]");
  constexpr StatusCode kBad = StatusCode::kInvalidArgument;
  EXPECT_THAT(Message(file, {.name = "third", .shape = {1, 2}}, kBad),
              AllOf(HasSubstr("'third'"), inputs));
  EXPECT_THAT(Message(file, {.index = 2, .shape = {1, 2}}, kBad), AllOf(HasSubstr("2"), inputs));
  EXPECT_THAT(Message(file, {.index = -2, .shape = {1, 2}}, kBad), AllOf(HasSubstr("-2"), inputs));
  EXPECT_THAT(Message(file, {.shape = {1, 2}}, kBad), AllOf(HasSubstr("which input"), inputs));
  EXPECT_THAT(
      Refusal(file, {{.index = 1, .shape = {1, 4}}, {.name = "second", .shape = {1, 5}}}).message(),
      HasSubstr("'second' is given twice"));
  EXPECT_TRUE(Model::FromBuffer(file, std::vector<InputShape>{{.name = "first", .shape = {1, 9}},
                                                              {.index = 1, .shape = {7, 3}}})
                  .ok());

  m.tensor(b).name = "first";
  EXPECT_THAT(Message(m.Build(), {.name = "first", .shape = {1, 2}}, kBad),
              HasSubstr("several inputs are called 'first'"));
}

TEST(InputShapes, RanksAndSizesMustBePossible) {
  const Bytes file = AnySize().Build();
  constexpr StatusCode kBad = StatusCode::kInvalidArgument;
  for (const Shape& shape : {Shape{}, Shape{8}, Shape{8, 8, 3}, Shape{1, 8, 8, 3, 1}}) {
    EXPECT_THAT(Message(file, {.shape = shape}, kBad),
                AllOf(HasSubstr("'image' [1, 8, 8, 3]"), HasSubstr(ShapeString(shape)),
                      HasSubstr("must have 4 sizes, or be a height and a width")));
  }
  for (const Shape& shape : {Shape{0, 8}, Shape{1, -1, 8, 3}, Shape{1, 8, INT32_MIN, 3}}) {
    EXPECT_THAT(Message(file, {.shape = shape}, kBad), HasSubstr("at least 1"));
  }
  for (const Shape& shape : {Shape{1 << 15, 1 << 15}, Shape{INT32_MAX, INT32_MAX},
                             Shape{INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}}) {
    EXPECT_THAT(Message(file, {.shape = shape}, kBad), HasSubstr("2147483647 bytes"));
  }
  // Only an intermediate tensor would be too large.
  ModelBuilder wider;
  const int32_t x = wider.Input({1, 8, 8, 3});
  wider.tensor(x).name = "image";
  wider.Output(wider.Conv2D(x, {.channels = 4}));
  EXPECT_THAT(Message(wider.Build(), {.shape = {20000, 30000}}, StatusCode::kUnsupported),
              AllOf(HasSubstr("with input 'image' of shape [1, 20000, 30000, 3]"),
                    HasSubstr("CONV_2D"), HasSubstr("below 2147483647 bytes")));
}

TEST(InputShapes, TheFirstNodeThatTheyDoNotFitIsNamed) {
  constexpr StatusCode kCorrupt = StatusCode::kCorruptModel;
  ModelBuilder channels;
  channels.Output(channels.Conv2D(channels.Input({1, 8, 8, 3}), {.channels = 2, .kernel = 3}));
  EXPECT_THAT(Message(channels.Build(), {.shape = {1, 8, 8, 4}}, kCorrupt),
              AllOf(HasSubstr("of shape [1, 8, 8, 4]: node 0 (CONV_2D)")));
  ModelBuilder dense;
  dense.Output(dense.FullyConnected(dense.Relu(dense.Input({1, 8, 8, 1})), 3));
  EXPECT_THAT(Message(dense.Build(), {.shape = {9, 9}}, kCorrupt),
              HasSubstr("node 1 (FULLY_CONNECTED)"));
  ModelBuilder flat;
  flat.Output(flat.Reshape(flat.Relu(flat.Input({1, 4, 4, 2})), {1, 32}));
  EXPECT_THAT(Message(flat.Build(), {.shape = {5, 4}}, kCorrupt), HasSubstr("node 1 (RESHAPE)"));
  ModelBuilder sum;
  const int32_t x = sum.Input({1, 4, 4, 2});
  sum.Output(sum.Add(x, sum.Constant({1, 4, 4, 2})));
  EXPECT_THAT(Message(sum.Build(), {.shape = {5, 4}}, kCorrupt), HasSubstr("node 0 (ADD)"));
}

// A damaged file is refused or keeps the promises of graph.h, whatever shapes it is to have.
TEST(InputShapes, DamagedFilesAreHarmless) {
  const Bytes good = AnySize().Build();
  for (size_t i = 0; i < good.size(); ++i) {
    for (const uint8_t flipped : {uint8_t{0x01}, uint8_t{0x80}, uint8_t{0xFF}}) {
      Bytes file = good;
      file[i] ^= flipped;
      const auto model = Model::FromBuffer(file, std::vector<InputShape>{{.shape = {9, 7}}});
      if (model.ok()) {
        ASSERT_NO_FATAL_FAILURE(ExpectPromisesKept((*model)->graph())) << i;
      } else {
        ASSERT_FALSE(model.status().message().empty()) << i;
      }
    }
  }
}

}  // namespace
}  // namespace atollrt
