// SPDX-License-Identifier: Apache-2.0
//
// Operators of int16 that are linked apart, in models of one node: the bytes of TensorFlow Lite's C
// interface. The library behind that interface is ours, or where npm has brought it TensorFlow Lite
// 2.9. Functions of one number are tried on all 65,536.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/compat/tflite_runner.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using Numbers = std::vector<int16_t>;

int32_t Tensor16(ModelBuilder& m, int32_t tensor, float scale) {
  m.tensor(tensor).type = DataType::kInt16;
  Quantize(m, tensor, scale, 0);
  return tensor;
}
int32_t Input16(ModelBuilder& m, Shape shape, float scale) {
  return Tensor16(m, m.Input(std::move(shape)), scale);
}

Numbers AllNumbers() {
  Numbers all(1 << 16);
  std::iota(all.begin(), all.end(), INT16_MIN);
  return all;
}

// From both ends and the middle as well as from everywhere.
Numbers RandomNumbers(Rng& rng, int64_t count) {
  Numbers numbers(static_cast<size_t>(count));
  for (int16_t& number : numbers) {
    const int32_t any = rng.Int32(INT16_MIN, INT16_MAX);
    const int32_t shift = rng.Int32(0, 15);
    number = static_cast<int16_t>(rng.OneIn(16) ? (any < 0 ? INT16_MIN : INT16_MAX) : any >> shift);
  }
  return numbers;
}

void ExpectTheirs(const ModelBuilder& m, const std::vector<Numbers>& inputs) {
  const std::unique_ptr<Interpreter> ours = Prepare(m);
  ASSERT_NE(ours, nullptr);
  TfLiteRunner theirs(m.Build());
  ASSERT_TRUE(theirs.ok());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::span<uint8_t> bytes = ours->TensorBytes(m.graph().inputs[i]);
    ASSERT_EQ(bytes.size(), inputs[i].size() * sizeof(int16_t));
    std::memcpy(bytes.data(), inputs[i].data(), bytes.size());
    theirs.SetInput(i, bytes);
  }
  theirs.Invoke();
  const Status status = ours->Invoke();
  ASSERT_TRUE(status.ok()) << status.message();
  const Numbers found = Values<int16_t>(*ours, m.graph().outputs[0]);
  const std::vector<uint8_t> bytes = theirs.Output(0);
  ASSERT_EQ(bytes.size(), found.size() * sizeof(int16_t));
  Numbers wanted(found.size());
  std::memcpy(wanted.data(), bytes.data(), bytes.size());
  const auto [ours_at, theirs_at] = std::mismatch(found.begin(), found.end(), wanted.begin());
  if (ours_at == found.end()) return;
  ADD_FAILURE() << "element " << ours_at - found.begin() << " is " << *ours_at << ", theirs is "
                << *theirs_at;
}

void ExpectTheirsOfAllNumbers(OpType type, float scale, float output_scale, OpOptions options = {},
                              int version = 3) {
  SCOPED_TRACE(OpTypeName(type) + " of scale " + std::to_string(scale) + " to " +
               std::to_string(output_scale));
  ModelBuilder m;
  const int32_t x = Input16(m, {256, 256}, scale);
  m.Output(Tensor16(m, m.Node(type, {x}, {}, std::move(options)), output_scale));
  m.graph().nodes.back().version = version;
  ExpectTheirs(m, {AllNumbers()});
}

// Not what counts as 1/4096, or 1/2048 for TANH: the original's default kernels, unlike the
// reference's, have another way for that.
constexpr float kInputScales[] = {3.1e-5f, 1.0f / 8192, 2.9e-4f, 5.5e-4f, 1.7e-3f,
                                  0.011f,  0.3f,        2.5f,    5.3f};

TEST(TfLiteInt16, Logistic) {
  for (const float scale : kInputScales) {
    ExpectTheirsOfAllNumbers(OpType::kLOGISTIC, scale, 1.0f / 32768);
  }
}

TEST(TfLiteInt16, Tanh) {
  for (const float scale : kInputScales) {
    ExpectTheirsOfAllNumbers(OpType::kTANH, scale, 1.0f / 32768);
  }
}

// Not with a negative slope, which the original rounded otherwise before March of 2026.
TEST(TfLiteInt16, Rectifiers) {
  using enum OpType;
  for (const float output_scale : {2e-4f, 1.234e-3f, 4e-3f}) {
    for (const float alpha : {0.1f, 0.0f, 1.5f}) {
      ExpectTheirsOfAllNumbers(kLEAKY_RELU, 1.1e-3f, output_scale, LeakyReluOptions{.alpha = alpha},
                               2);
    }
    for (const OpType type : {kRELU, kRELU6}) {
      ExpectTheirsOfAllNumbers(type, 1.1e-3f, output_scale);
    }
  }
}

void ExpectTheirsOfRows(int32_t rows, const Numbers& x, float scale, float beta) {
  const auto depth = static_cast<int32_t>(static_cast<int64_t>(x.size()) / rows);
  SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(depth) + ", scale " +
               std::to_string(scale));
  ModelBuilder m;
  const int32_t input = Input16(m, {rows, depth}, scale);
  const int32_t y = m.Node(OpType::kSOFTMAX, {input}, {}, SoftmaxOptions{.beta = beta});
  m.Output(Tensor16(m, y, 1.0f / 32768));
  m.graph().nodes.back().version = 3;
  ExpectTheirs(m, {x});
}

TEST(TfLiteInt16, Softmax) {
  for (const int32_t rows : {1, 64, 65536}) ExpectTheirsOfRows(rows, AllNumbers(), 3e-4f, 1);
  Rng rng(TestSeed(1));
  constexpr int32_t kRows = 7;
  for (const int64_t depth : {1, 2, 3, 10, 1001, 5000}) {
    for (const float scale : {1e-5f, 3e-4f, 1.0f / 4096, 0.01f, 0.7f, 5.0f}) {
      for (const float beta : {1.0f, 0.25f}) {
        ExpectTheirsOfRows(kRows, RandomNumbers(rng, kRows * depth), scale, beta);
      }
    }
  }
}

TEST(TfLiteInt16, Sums) {
  using enum OpType;
  Rng rng(TestSeed(3));
  struct Scales {
    float a, b, output;
  };
  const Scales kScales[] = {
      {1.3e-3f, 4e-4f, 1.5e-3f}, {6.2e-5f, 2.3e-4f, 2.4e-4f}, {1e-4f, 1e-4f, 9e-5f}};
  for (const OpType type : {kADD, kSUB}) {
    for (const Scales& scales : kScales) {
      for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
        for (const Shape& other : {Shape{2, 3, 40, 50}, Shape{50}}) {
          SCOPED_TRACE(OpTypeName(type) + ShapeString(other) + std::to_string(scales.a));
          ModelBuilder m;
          const int32_t a = Input16(m, {2, 3, 40, 50}, scales.a);
          const int32_t b = Input16(m, other, scales.b);
          const int32_t y =
              m.Node(type, {a, b}, {},
                     ElementwiseOptions{.activation = activation, .pot_scale_int16 = false});
          m.Output(Tensor16(m, y, scales.output));
          m.graph().nodes.back().version = type == kADD ? 3 : 5;
          ExpectTheirs(
              m, {RandomNumbers(rng, 2 * 3 * 40 * 50), RandomNumbers(rng, ElementCount(other))});
        }
      }
    }
  }
}

TEST(TfLiteInt16, Pools) {
  using enum OpType;
  Rng rng(TestSeed(4));
  for (const OpType type : {kAVERAGE_POOL_2D, kMAX_POOL_2D}) {
    for (const int32_t size : {2, 3, 8}) {
      for (const Padding padding : {Padding::kSame, Padding::kValid}) {
        SCOPED_TRACE(OpTypeName(type) + std::to_string(size));
        ModelBuilder m;
        const int32_t x = Input16(m, {1, 8, 8, 64}, 1e-3f);
        const int32_t y = m.Node(type, {x}, {},
                                 Pool2DOptions{.padding = padding,
                                               .stride_h = 2,
                                               .stride_w = 2,
                                               .filter_h = size,
                                               .filter_w = size});
        m.Output(Tensor16(m, y, 1e-3f));
        m.graph().nodes.back().version = 3;
        ExpectTheirs(m, {RandomNumbers(rng, 8 * 8 * 64)});
      }
    }
  }
}

TEST(TfLiteInt16, Products) {
  struct Shapes {
    Shape a, b;
  };
  const Shapes kShapes[] = {{{2, 3, 4, 5}, {2, 3, 4, 5}},
                            {{2, 3, 4, 5}, {5}},
                            {{2, 3, 4, 5}, {1}},
                            {{1, 3, 1, 5}, {2, 1, 4, 5}},
                            {{40, 50}, {40, 50}}};
  Rng rng(TestSeed(2));
  for (const Shapes& shapes : kShapes) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kRelu6}) {
      for (const float output_scale : {1e-3f, 0.02f, 7e-5f}) {
        SCOPED_TRACE(ShapeString(shapes.a) + ShapeString(shapes.b));
        ModelBuilder m;
        const int32_t a = Input16(m, shapes.a, 1.3e-3f);
        const int32_t b = Input16(m, shapes.b, 4e-4f);
        const int32_t y =
            m.Node(OpType::kMUL, {a, b}, {}, ElementwiseOptions{.activation = activation});
        m.Output(Tensor16(m, y, output_scale));
        m.graph().nodes.back().version = 4;
        ExpectTheirs(m, {RandomNumbers(rng, ElementCount(shapes.a)),
                         RandomNumbers(rng, ElementCount(shapes.b))});
      }
    }
  }
}

}  // namespace
}  // namespace atollrt
