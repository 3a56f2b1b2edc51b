// SPDX-License-Identifier: Apache-2.0
//
// Element-wise operators of the types that the conformance cases leave out, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/ops/cpu_ops.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One node with its operands.
class OneNode {
 public:
  explicit OneNode(OpType type, OpOptions options = {}) {
    graph_.nodes.resize(1);
    node().type = type;
    node().options = std::move(options);
    if (type == OpType::kADD || type == OpType::kSUB || type == OpType::kMUL ||
        type == OpType::kDIV || type == OpType::kL2_NORMALIZATION) {
      if (std::holds_alternative<std::monostate>(node().options)) {
        node().options = ElementwiseOptions{};
      }
    }
  }

  template <typename T>
  OneNode& Input(DataType type, Shape shape, const std::vector<T>& values,
                 Quantization quantization = {}) {
    std::vector<uint8_t> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    inputs_.push_back(std::move(bytes));
    node().inputs.push_back(AddTensor(type, std::move(shape), std::move(quantization)));
    return *this;
  }
  OneNode& Output(DataType type, Quantization quantization = {}) {
    node().outputs.push_back(AddTensor(type, {}, std::move(quantization)));
    return *this;
  }

  // The result's elements; status() says why there are none.
  template <typename T>
  std::vector<T> Run() {
    status_ = InferShapes(&graph_);
    if (!status_.ok()) return {};
    auto executor = PrepareCpuNode(graph_, node(), CpuFeatures{});
    status_ = executor.status();
    if (!executor.ok()) return {};
    std::vector<T> result(static_cast<size_t>(graph_.Output(node()).element_count()));
    std::vector<const uint8_t*> inputs;
    for (const auto& bytes : inputs_) inputs.push_back(bytes.data());
    uint8_t* output = reinterpret_cast<uint8_t*>(result.data());
    status_ = (*executor)->Invoke({.inputs = inputs, .outputs = {&output, 1}, .state = {}});
    return result;
  }

  const Status& status() const { return status_; }
  const Shape& output_shape() const { return graph_.Output(graph_.nodes[0]).shape; }

 private:
  Node& node() { return graph_.nodes[0]; }
  int32_t AddTensor(DataType type, Shape shape, Quantization quantization) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(graph_.tensors.size());
    tensor.type = type;
    tensor.shape = std::move(shape);
    tensor.quantization = std::move(quantization);
    graph_.tensors.push_back(std::move(tensor));
    return static_cast<int32_t>(graph_.tensors.size()) - 1;
  }

  Graph graph_;
  std::vector<std::vector<uint8_t>> inputs_;
  Status status_;
};

Quantization Affine(float scale, int64_t zero_point) {
  return {.scales = {scale}, .zero_points = {zero_point}};
}

template <typename T>
std::vector<T> Pair(OneNode node, DataType type, const std::vector<T>& a, const std::vector<T>& b) {
  node.Input<T>(type, {static_cast<int32_t>(a.size())}, a);
  node.Input<T>(type, {static_cast<int32_t>(b.size())}, b).Output(type);
  std::vector<T> result = node.Run<T>();
  EXPECT_TRUE(node.status().ok()) << node.status().message();
  return result;
}

// ---- Integers -----------------------------------------------------------------------------------

TEST(IntegerArithmetic, Wraps) {
  EXPECT_THAT(Pair<int32_t>(OneNode(OpType::kADD), DataType::kInt32, {INT32_MAX, 5}, {1}),
              ElementsAre(INT32_MIN, 6));
  EXPECT_THAT(Pair<int64_t>(OneNode(OpType::kSUB), DataType::kInt64, {INT64_MIN, 5}, {1}),
              ElementsAre(INT64_MAX, 4));
  EXPECT_THAT(Pair<int32_t>(OneNode(OpType::kMUL), DataType::kInt32, {1 << 20, -3}, {1 << 20}),
              ElementsAre(0, -3 * (1 << 20)));
}

TEST(IntegerArithmetic, ClampsValues) {
  const ElementwiseOptions relu6{.activation = Activation::kRelu6};
  EXPECT_THAT(Pair<int32_t>(OneNode(OpType::kADD, relu6), DataType::kInt32, {-9, 3, 9}, {1}),
              ElementsAre(0, 4, 6));
}

TEST(IntegerDivision, TruncatesOrFloors) {
  EXPECT_THAT(
      Pair<int32_t>(OneNode(OpType::kDIV), DataType::kInt32, {7, -7, 7, INT32_MIN}, {2, 2, -2, -1}),
      ElementsAre(3, -3, -3, INT32_MIN));
  EXPECT_THAT(Pair<int32_t>(OneNode(OpType::kFLOOR_DIV), DataType::kInt32, {7, -7, 7, INT32_MIN},
                            {2, 2, -2, -1}),
              ElementsAre(3, -4, -4, INT32_MIN));
}

TEST(IntegerDivision, RefusesZeroWhenItRuns) {
  for (const OpType type : {OpType::kDIV, OpType::kFLOOR_DIV}) {
    OneNode node(type);
    node.Input<int32_t>(DataType::kInt32, {2}, {1, 2});
    node.Input<int32_t>(DataType::kInt32, {2}, {3, 0}).Output(DataType::kInt32);
    node.Run<int32_t>();
    EXPECT_EQ(node.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(node.status().message(), HasSubstr("element 1"));
  }
}

TEST(ByteDivision, RefusesTheZeroPointWhenItRuns) {
  OneNode node(OpType::kDIV);
  node.Input<int8_t>(DataType::kInt8, {2}, {1, 2}, Affine(1, 0));
  node.Input<int8_t>(DataType::kInt8, {2}, {0, -7}, Affine(1, -7));
  node.Output(DataType::kInt8, Affine(1, 0)).Run<int8_t>();
  EXPECT_EQ(node.status().code(), StatusCode::kInvalidArgument);
}

TEST(Selection, TakesEveryNumericType) {
  EXPECT_THAT(Pair<int16_t>(OneNode(OpType::kMAXIMUM), DataType::kInt16, {-5, 7}, {0}),
              ElementsAre(0, 7));
  EXPECT_THAT(Pair<int64_t>(OneNode(OpType::kMINIMUM), DataType::kInt64, {-5, 7}, {0}),
              ElementsAre(-5, 0));
  EXPECT_THAT(Pair<float>(OneNode(OpType::kMINIMUM), DataType::kFloat32, {-5, 7}, {0.5f}),
              ElementsAre(-5, 0.5f));
}

// ---- float32 ------------------------------------------------------------------------------------

TEST(FloatArithmetic, IsPlain) {
  EXPECT_THAT(Pair<float>(OneNode(OpType::kSUB), DataType::kFloat32, {1, 2}, {0.25f}),
              ElementsAre(0.75f, 1.75f));
  EXPECT_THAT(Pair<float>(OneNode(OpType::kSQUARED_DIFFERENCE), DataType::kFloat32, {1, 2}, {-1}),
              ElementsAre(4, 9));
  EXPECT_THAT(Pair<float>(OneNode(OpType::kFLOOR_DIV), DataType::kFloat32, {-1, 5}, {2}),
              ElementsAre(-1, 2));
  EXPECT_THAT(Pair<float>(OneNode(OpType::kPRELU), DataType::kFloat32, {-1, 5}, {0.5f}),
              ElementsAre(-0.5f, 5));
}

TEST(FloatArithmetic, TurnsInfinitiesIntoTheLargestNumbers) {
  EXPECT_THAT(Pair<float>(OneNode(OpType::kDIV), DataType::kFloat32, {1, -1}, {0}),
              ElementsAre(std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()));
}

std::vector<float> FunctionOf(OneNode node, const std::vector<float>& x) {
  node.Input<float>(DataType::kFloat32, {1, static_cast<int32_t>(x.size())}, x);
  std::vector<float> result = node.Output(DataType::kFloat32).Run<float>();
  EXPECT_TRUE(node.status().ok()) << node.status().message();
  return result;
}

TEST(FloatFunctions, ArePlain) {
  EXPECT_THAT(FunctionOf(OneNode(OpType::kRELU), {-2, 9, kInfinity}),
              ElementsAre(0, 9, std::numeric_limits<float>::max()));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kRELU6), {-2, 3, 9}), ElementsAre(0, 3, 6));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kRELU_N1_TO_1), {-2, 0.5f, 9}), ElementsAre(-1, 0.5f, 1));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kLEAKY_RELU, LeakyReluOptions{.alpha = 0.5f}), {-2, 3}),
              ElementsAre(-1, 3));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kHARD_SWISH), {-4, 0, 4}), ElementsAre(0, 0, 4));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kLOGISTIC), {0, kInfinity}), ElementsAre(0.5f, 1));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kTANH), {0, kInfinity}), ElementsAre(0, 1));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kEXP), {0, -kInfinity}), ElementsAre(1, 0));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kSQRT), {4, 9}), ElementsAre(2, 3));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kRSQRT), {4, 16}), ElementsAre(0.5f, 0.25f));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kL2_NORMALIZATION), {3, 4}), ElementsAre(0.6f, 0.8f));
  EXPECT_THAT(FunctionOf(OneNode(OpType::kLOG_SOFTMAX), {1, 1}),
              ElementsAre(-std::log(2.0f), -std::log(2.0f)));
}

// ---- Comparisons --------------------------------------------------------------------------------

template <typename T>
std::vector<uint8_t> Compare(OpType type, DataType data_type, const std::vector<T>& a,
                             const std::vector<T>& b) {
  OneNode node(type);
  node.Input<T>(data_type, {static_cast<int32_t>(a.size())}, a);
  node.Input<T>(data_type, {static_cast<int32_t>(b.size())}, b).Output(DataType::kBool);
  std::vector<uint8_t> result = node.Run<uint8_t>();
  EXPECT_TRUE(node.status().ok()) << node.status().message();
  return result;
}

TEST(Comparisons, TakeOtherTypesThanBytes) {
  EXPECT_THAT(Compare<float>(OpType::kLESS, DataType::kFloat32, {1, 2, NAN}, {2}),
              ElementsAre(1, 0, 0));
  EXPECT_THAT(Compare<int32_t>(OpType::kGREATER_EQUAL, DataType::kInt32, {1, 2}, {2}),
              ElementsAre(0, 1));
  EXPECT_THAT(Compare<int64_t>(OpType::kEQUAL, DataType::kInt64, {int64_t{1} << 32, 0}, {0}),
              ElementsAre(0, 1));
  EXPECT_THAT(Compare<uint8_t>(OpType::kNOT_EQUAL, DataType::kBool, {0, 1}, {1}),
              ElementsAre(1, 0));
}

// ---- Refusals -----------------------------------------------------------------------------------

TEST(Rsqrt, RefusesNegativeElementsWhenItRuns) {
  OneNode node(OpType::kRSQRT);
  node.Input<int8_t>(DataType::kInt8, {3}, {5, 6, 4}, Affine(0.1f, 5));
  node.Output(DataType::kInt8, Affine(0.1f, 0)).Run<int8_t>();
  EXPECT_EQ(node.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(node.status().message(), HasSubstr("element 2"));
}

TEST(Prelu, RefusesSlopesThatEnlargeTheInput) {
  OneNode node(OpType::kPRELU);
  node.Input<float>(DataType::kFloat32, {1, 2}, {1, 2});
  node.Input<float>(DataType::kFloat32, {3, 1}, {1, 2, 3}).Output(DataType::kFloat32);
  node.Run<float>();
  EXPECT_EQ(node.status().code(), StatusCode::kCorruptModel);
  EXPECT_THAT(node.status().message(), HasSubstr("[3, 1]"));
}

TEST(SquaredDifference, RefusesUnsignedBytes) {
  OneNode node(OpType::kSQUARED_DIFFERENCE);
  node.Input<uint8_t>(DataType::kUInt8, {1}, {1}, Affine(1, 0));
  node.Input<uint8_t>(DataType::kUInt8, {1}, {1}, Affine(1, 0));
  node.Output(DataType::kUInt8, Affine(1, 0)).Run<uint8_t>();
  EXPECT_EQ(node.status().code(), StatusCode::kUnsupported);
}

struct Add16Case {
  const char* what;
  float scale1, scale2, output_scale;
  int64_t zero_point;
  StatusCode code;
};

TEST(Add16, ChecksScalesAndZeroPoints) {
  for (const Add16Case& c : {
           Add16Case{"powers of two", 0.25f, 0.5f, 0.5f, 0, StatusCode::kOk},
           Add16Case{"general scales", 0.3f, 0.5f, 0.5f, 0, StatusCode::kOk},
           Add16Case{"both shift", 0.25f, 0.25f, 0.5f, 0, StatusCode::kCorruptModel},
           Add16Case{"a left shift", 0.5f, 1.0f, 0.5f, 0, StatusCode::kCorruptModel},
           Add16Case{"a zero point", 0.3f, 0.5f, 0.5f, 1, StatusCode::kCorruptModel},
           Add16Case{"a tiny output scale", 0.3f, 0.5f, 1e-6f, 0, StatusCode::kCorruptModel},
       }) {
    OneNode node(OpType::kADD);
    node.Input<int16_t>(DataType::kInt16, {1}, {100}, Affine(c.scale1, c.zero_point));
    node.Input<int16_t>(DataType::kInt16, {1}, {100}, Affine(c.scale2, 0));
    node.Output(DataType::kInt16, Affine(c.output_scale, 0)).Run<int16_t>();
    EXPECT_EQ(node.status().code(), c.code) << c.what << ": " << node.status().message();
  }
}

struct FormatCase {
  OpType type;
  Quantization output;
  const char* message;
};

TEST(OutputFormats, MustBeTheOperatorsOwn) {
  for (const FormatCase& c : {
           FormatCase{OpType::kL2_NORMALIZATION, Affine(1.0f / 64, 0), "0.0078125"},
           FormatCase{OpType::kLOG_SOFTMAX, Affine(1.0f / 16, 0), "127"},
           FormatCase{OpType::kHARD_SWISH, Affine(1e-6f, 0), "1/128"},
       }) {
    OneNode node(c.type);
    node.Input<int8_t>(DataType::kInt8, {1, 2}, {1, 2}, Affine(1, 0));
    node.Output(DataType::kInt8, c.output).Run<int8_t>();
    EXPECT_EQ(node.status().code(), StatusCode::kCorruptModel);
    EXPECT_THAT(node.status().message(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace atollrt
