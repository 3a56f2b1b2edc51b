// SPDX-License-Identifier: Apache-2.0
#include "runtime/shapes/shape_inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- Windows ------------------------------------------------------------------------------------

struct WindowCase {
  const char* what;
  WindowSize size;  // input, filter, stride, dilation
  Padding padding;
  int32_t output;
  int32_t pad_before;
};

// By hand: SAME gives ceil(input / stride), VALID ceil((input - extent + 1) / stride), with
// extent = (filter - 1) * dilation + 1; half of what is missing, rounded down, comes first.
constexpr WindowCase kWindows[] = {
    {"one cell", {1, 1, 1, 1}, Padding::kSame, 1, 0},
    {"3 over 8, same", {8, 3, 1, 1}, Padding::kSame, 8, 1},
    {"3 over 8, valid", {8, 3, 1, 1}, Padding::kValid, 6, 0},
    {"even filter pads more behind", {8, 2, 1, 1}, Padding::kSame, 8, 0},
    {"4 over 8 pads 1 + 2", {8, 4, 1, 1}, Padding::kSame, 8, 1},
    {"stride 2 of an even size pads behind", {224, 3, 2, 1}, Padding::kSame, 112, 0},
    {"stride 2 of an odd size pads both", {225, 3, 2, 1}, Padding::kSame, 113, 1},
    {"stride 2, valid", {224, 3, 2, 1}, Padding::kValid, 111, 0},
    {"stride beyond the filter needs no padding", {10, 2, 5, 1}, Padding::kSame, 2, 0},
    {"stride beyond the image", {3, 1, 7, 1}, Padding::kSame, 1, 0},
    {"stride beyond the image, valid", {3, 3, 7, 1}, Padding::kValid, 1, 0},
    {"dilation 2 reaches 5", {10, 3, 1, 2}, Padding::kSame, 10, 2},
    {"dilation 2, valid", {10, 3, 1, 2}, Padding::kValid, 6, 0},
    {"dilation and stride", {15, 3, 2, 3}, Padding::kSame, 8, 3},
    {"dilation and stride, valid", {15, 3, 2, 3}, Padding::kValid, 5, 0},
    {"filter beyond the image, same", {3, 7, 1, 1}, Padding::kSame, 3, 3},
    {"filter beyond the image, valid", {3, 7, 1, 1}, Padding::kValid, 0, 0},
    {"filter just fits", {7, 7, 3, 1}, Padding::kValid, 1, 0},
    {"largest parameters", {65535, 65535, 1, 65535}, Padding::kValid, 0, 0},
};

TEST(ResolveWindow, FollowsTheFormulas) {
  for (const WindowCase& c : kWindows) {
    const WindowResult result = ResolveWindow(c.size, c.padding);
    EXPECT_EQ(result.output, c.output) << c.what;
    EXPECT_EQ(result.pad_before, c.pad_before) << c.what;
  }
}

// The definition: SAME has the fewest windows that start every `stride` cells and cover the
// image; VALID counts the windows that lie inside.
TEST(ResolveWindow, CountsWindowsThatLieInside) {
  for (int32_t input = 1; input <= 20; ++input) {
    for (int32_t filter = 1; filter <= 5; ++filter) {
      for (int32_t stride = 1; stride <= 4; ++stride) {
        for (int32_t dilation = 1; dilation <= 3; ++dilation) {
          int32_t inside = 0;
          for (int32_t start = 0; start + (filter - 1) * dilation < input; start += stride) {
            ++inside;
          }
          EXPECT_EQ(ResolveWindow({input, filter, stride, dilation}, Padding::kValid).output,
                    inside);
        }
      }
    }
  }
}

TEST(NormalizeAxis, CountsNegativeAxesFromTheEnd) {
  EXPECT_EQ(NormalizeAxis(0, 4), 0);
  EXPECT_EQ(NormalizeAxis(3, 4), 3);
  EXPECT_EQ(NormalizeAxis(-1, 4), 3);
  EXPECT_EQ(NormalizeAxis(-4, 4), 0);
}

TEST(NormalizeAxis, RefusesAxesThatDoNotExist) {
  EXPECT_EQ(NormalizeAxis(4, 4), -1);
  EXPECT_EQ(NormalizeAxis(-5, 4), -1);
  EXPECT_EQ(NormalizeAxis(0, 0), -1);
  EXPECT_EQ(NormalizeAxis(INT64_MIN, 4), -1);
}

TEST(BroadcastShapes, StretchesOnesAndAddsDimensionsInFront) {
  Shape result;
  EXPECT_TRUE(BroadcastShapes({1, 4, 1, 3}, {1, 5, 1}, &result));
  EXPECT_THAT(result, ElementsAre(1, 4, 5, 3));
  EXPECT_TRUE(BroadcastShapes({}, {2, 3}, &result));
  EXPECT_THAT(result, ElementsAre(2, 3));
  EXPECT_TRUE(BroadcastShapes({0, 3}, {1, 3}, &result));
  EXPECT_THAT(result, ElementsAre(0, 3));
}

TEST(BroadcastShapes, RefusesSizesThatDiffer) {
  Shape result;
  EXPECT_FALSE(BroadcastShapes({2, 3}, {2, 4}, &result));
  EXPECT_FALSE(BroadcastShapes({0}, {2}, &result));
}

// ---- Operators ----------------------------------------------------------------------------------

// The output shape of a model's last node, when the file stores none.
Shape Inferred(ModelBuilder& m, int32_t output) {
  m.tensor(output).shape = {};
  m.Output(output);
  const auto model = m.Load();
  return model == nullptr ? Shape{-1} : model->graph().tensors[static_cast<size_t>(output)].shape;
}

std::string Refusal(ModelBuilder& m, int32_t output) {
  m.Output(output);
  const auto model = Model::FromBuffer(m.Build());
  EXPECT_FALSE(model.ok());
  return model.status().message();
}

TEST(InferShapes, Convolution) {
  ModelBuilder m;
  EXPECT_THAT(
      Inferred(m, m.Conv2D(m.Input({2, 9, 7, 3}), {.channels = 5, .kernel = 3, .stride = 2})),
      ElementsAre(2, 5, 4, 5));
}

TEST(InferShapes, DepthwiseConvolution) {
  ModelBuilder m;
  EXPECT_THAT(Inferred(m, m.DepthwiseConv2D(m.Input({1, 9, 7, 3}),
                                            {.kernel = 3, .padding = Padding::kValid})),
              ElementsAre(1, 7, 5, 3));
}

TEST(InferShapes, FullyConnectedFlattens) {
  ModelBuilder m;
  EXPECT_THAT(Inferred(m, m.FullyConnected(m.Input({2, 3, 4}), 7)), ElementsAre(2, 7));
}

TEST(InferShapes, FullyConnectedKeepsDimensions) {
  ModelBuilder m;
  const int32_t x = m.Input({2, 3, 4});
  const int32_t y = m.FullyConnected(m.Reshape(x, {6, 4}), 7);
  m.graph().nodes.erase(m.graph().nodes.begin());
  m.graph().nodes[0].inputs[0] = x;
  m.graph().nodes[0].options = FullyConnectedOptions{.keep_num_dims = true};
  EXPECT_THAT(Inferred(m, y), ElementsAre(2, 3, 7));
}

TEST(InferShapes, Pool) {
  ModelBuilder m;
  EXPECT_THAT(Inferred(m, m.MaxPool(m.Input({1, 5, 5, 3}), {.size = 2, .stride = 2})),
              ElementsAre(1, 2, 2, 3));
}

TEST(InferShapes, MeanKeepsOrDropsDimensions) {
  ModelBuilder keeping;
  EXPECT_THAT(Inferred(keeping, keeping.Mean(keeping.Input({1, 5, 6, 3}), {1, 2})),
              ElementsAre(1, 1, 1, 3));
  ModelBuilder dropping;
  const int32_t y = dropping.Mean(dropping.Input({1, 5, 6, 3}), {1, 2});
  dropping.graph().nodes[0].options = ReducerOptions{.keep_dims = false};
  EXPECT_THAT(Inferred(dropping, y), ElementsAre(1, 3));
}

TEST(InferShapes, Concatenation) {
  ModelBuilder m;
  EXPECT_THAT(Inferred(m, m.Concatenation({m.Input({1, 2, 3}), m.Input({1, 5, 3})}, 1)),
              ElementsAre(1, 7, 3));
}

TEST(InferShapes, Pad) {
  ModelBuilder m;
  EXPECT_THAT(Inferred(m, m.Pad(m.Input({1, 2}), {0, 0, 3, 4})), ElementsAre(1, 9));
}

TEST(InferShapes, ReshapeFillsInTheUnknownSize) {
  ModelBuilder m;
  EXPECT_THAT(Inferred(m, m.Reshape(m.Input({2, 3, 4}), {4, -1})), ElementsAre(4, 6));
}

TEST(InferShapes, ReshapeToAScalar) {
  ModelBuilder m;
  EXPECT_THAT(Inferred(m, m.Reshape(m.Input({1, 1}), {})), IsEmpty());
}

TEST(InferShapes, SqueezeDropsOnes) {
  ModelBuilder m;
  EXPECT_THAT(Inferred(m, m.Node(OpType::kSQUEEZE, {m.Input({1, 3, 1, 2})}, {}, SqueezeOptions{})),
              ElementsAre(3, 2));
}

TEST(InferShapes, SqueezeDropsTheDimensionsNamed) {
  ModelBuilder m;
  EXPECT_THAT(Inferred(m, m.Node(OpType::kSQUEEZE, {m.Input({1, 3, 1, 2})}, {},
                                 SqueezeOptions{.dims = {-2}})),
              ElementsAre(1, 3, 2));
}

TEST(InferShapes, ReplacesAStoredShapeThatIsWrong) {
  ModelBuilder m;
  const int32_t y = m.Relu(m.Input({1, 3}));
  m.tensor(y).shape = {7, 7};
  m.Output(y);
  EXPECT_THAT(m.Load()->graph().tensors[static_cast<size_t>(y)].shape, ElementsAre(1, 3));
}

TEST(InferShapes, RefusesShapesThatDoNotBroadcast) {
  ModelBuilder m;
  EXPECT_EQ(Refusal(m, m.Add(m.Input({1, 3}), m.Input({1, 4}))),
            "node 0 (ADD) 't2': shapes [1, 3] and [1, 4] do not broadcast");
}

TEST(InferShapes, RefusesAnAxisThatDoesNotExist) {
  ModelBuilder m;
  const int32_t y = m.Mean(m.Input({1, 3}), {1});
  const int32_t five = m.Integers({1}, {5});
  m.graph().nodes[0].inputs[1] = five;
  EXPECT_EQ(Refusal(m, y), "node 0 (MEAN) 't2': axis 5 does not exist in shape [1, 3]");
}

TEST(InferShapes, RefusesAShapeThatIsComputed) {
  ModelBuilder m;
  const int32_t y = m.Pad(m.Input({1, 2}), {0, 0, 0, 0});
  const int32_t computed = m.Input({2, 2});
  m.tensor(computed).type = DataType::kInt32;
  m.graph().nodes[0].inputs[1] = computed;
  EXPECT_THAT(Refusal(m, y), HasSubstr("is computed at run time, which makes shapes dynamic"));
}

TEST(InferShapes, RefusesAWindowThatDoesNotFit) {
  ModelBuilder m;
  EXPECT_EQ(Refusal(m, m.MaxPool(m.Input({1, 2, 2, 1}), {.size = 3, .stride = 1})),
            "node 0 (MAX_POOL_2D) 't1': a window of 3x3 does not fit into an image of 2x2");
}

}  // namespace
}  // namespace atollrt
