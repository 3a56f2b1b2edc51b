// SPDX-License-Identifier: Apache-2.0
//
// Random float networks, whose errors must stay below what the steps of each layer add up to, and
// every option; calibration data that nobody should give.
#include "quantize/quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "quantize/check_prescriptions.h"
#include "quantize/edited_graph.h"
#include "quantize/float_pass.h"
#include "quantize/rewrite.h"
#include "runtime/model.h"
#include "runtime/tflite/tflite_writer.h"
#include "tests/quantize/quantize_testing.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using testing::HasSubstr;
using SampleList = std::vector<ListedSamples::Sample>;

// Float models, node by node.
class FloatBuilder {
 public:
  explicit FloatBuilder(uint64_t seed) : rng_(seed) { graph_.name = "main"; }

  int32_t Tensor(Shape shape) {
    atollrt::Tensor tensor;
    tensor.name = "t" + std::to_string(graph_.tensors.size());
    tensor.shape = std::move(shape);
    graph_.tensors.push_back(std::move(tensor));
    return static_cast<int32_t>(graph_.tensors.size() - 1);
  }
  int32_t Input(Shape shape) {
    graph_.inputs.push_back(Tensor(std::move(shape)));
    return graph_.inputs.back();
  }
  int32_t Constant(Shape shape, float scale) {
    std::vector<float> values(static_cast<size_t>(ElementCount(shape)));
    for (float& value : values) value = scale * Value();
    return Constant(std::move(shape), DataType::kFloat32, values);
  }
  template <typename T>
  int32_t Constant(Shape shape, DataType type, const std::vector<T>& values) {
    const int32_t made = Tensor(std::move(shape));
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    data_.push_back(
        std::make_unique<std::vector<uint8_t>>(bytes, bytes + values.size() * sizeof(T)));
    graph_.tensors[made].type = type;
    graph_.tensors[made].data = *data_.back();
    return made;
  }
  int32_t Node(OpType type, std::vector<int32_t> inputs, Shape shape, OpOptions options = {}) {
    atollrt::Node node;
    node.type = type;
    node.inputs = std::move(inputs);
    node.outputs = {Tensor(std::move(shape))};
    node.options = std::move(options);
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().outputs[0];
  }
  int32_t Conv(int32_t input, int32_t channels, int32_t kernel) {
    const Shape in = ShapeOf(input);
    const int32_t depth = kernel * kernel * in[3];
    const int32_t weights = Constant({channels, kernel, kernel, in[3]}, Gain(depth));
    return Node(OpType::kCONV_2D, {input, weights, Constant({channels}, 0.3f)},
                {in[0], in[1], in[2], channels}, Conv2DOptions());
  }
  int32_t Depthwise(int32_t input) {
    const Shape in = ShapeOf(input);
    return Node(OpType::kDEPTHWISE_CONV_2D,
                {input, Constant({1, 3, 3, in[3]}, Gain(9)), Constant({in[3]}, 0.3f)}, in,
                Conv2DOptions());
  }
  int32_t FullyConnected(int32_t input, int32_t units) {
    const int32_t depth = ShapeOf(input).back();
    return Node(OpType::kFULLY_CONNECTED,
                {input, Constant({units, depth}, Gain(depth)), Constant({units}, 0.3f)}, {1, units},
                FullyConnectedOptions());
  }
  int32_t Binary(OpType type, int32_t a, int32_t b) {
    return Node(type, {a, b}, ShapeOf(a), ElementwiseOptions());
  }
  int32_t Unary(OpType type, int32_t a) { return Node(type, {a}, ShapeOf(a)); }
  int32_t Softmax(int32_t a) { return Node(OpType::kSOFTMAX, {a}, ShapeOf(a), SoftmaxOptions()); }
  int32_t Concat(int32_t a, int32_t b) {
    Shape shape = ShapeOf(a);
    shape.back() += ShapeOf(b).back();
    return Node(OpType::kCONCATENATION, {a, b}, shape, AxisOptions{.axis = -1});
  }
  int32_t Flatten(int32_t a) {
    const Shape shape{1, static_cast<int32_t>(ElementCount(ShapeOf(a)))};
    return Node(OpType::kRESHAPE, {a, Constant({2}, DataType::kInt32, std::vector<int32_t>(shape))},
                shape, ReshapeOptions{shape});
  }
  void Output(int32_t tensor) { graph_.outputs.push_back(tensor); }

  const Shape& ShapeOf(int32_t tensor) const { return graph_.tensors[tensor].shape; }
  float Value() { return 2 * static_cast<float>(rng_.Int(0, 10000)) / 10000 - 1; }
  int Below(int limit) { return static_cast<int>(rng_.Int(0, limit - 1)); }
  Graph& graph() { return graph_; }

  std::vector<uint8_t> Build(const ModelExtras& extras = {}) const {
    const Graph* const graphs[] = {&graph_};
    auto bytes = WriteTflite(graphs, extras);
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    return *std::move(bytes);
  }
  SampleList MakeSamples(size_t count) {
    SampleList samples;
    for (size_t i = 0; i < count; ++i) {
      ListedSamples::Sample sample;
      for (const int32_t input : graph_.inputs) {
        std::vector<float> values(static_cast<size_t>(ElementCount(ShapeOf(input))));
        for (float& value : values) value = Value();
        sample.push_back(std::move(values));
      }
      samples.push_back(std::move(sample));
    }
    return samples;
  }

 private:
  static float Gain(int32_t depth) { return 1.5f / std::sqrt(static_cast<float>(depth)); }

  Rng rng_;
  Graph graph_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> data_;
};

Pool2DOptions Pooling(int32_t size, int32_t stride, Padding padding) {
  Pool2DOptions options;
  options.filter_h = options.filter_w = size;
  options.stride_h = options.stride_w = stride;
  options.padding = padding;
  return options;
}

// Around height and width, with `value` as PADV2 does it.
int32_t Padded(FloatBuilder* b, int32_t x, float value) {
  Shape shape = b->ShapeOf(x);
  shape[1] += 2;
  shape[2] += 2;
  const int32_t sizes =
      b->Constant({4, 2}, DataType::kInt32, std::vector<int32_t>{0, 0, 1, 1, 1, 1, 0, 0});
  return b->Node(OpType::kPADV2,
                 {x, sizes, b->Constant({}, DataType::kFloat32, std::vector<float>{value})}, shape);
}

int32_t MaxPooled(FloatBuilder* b, int32_t x, int32_t size, int32_t stride) {
  Shape shape = b->ShapeOf(x);
  shape[1] = (shape[1] - size) / stride + 1;
  shape[2] = (shape[2] - size) / stride + 1;
  return b->Node(OpType::kMAX_POOL_2D, {x}, shape, Pooling(size, stride, Padding::kValid));
}

int32_t Leaky(FloatBuilder* b, int32_t x) {
  return b->Node(OpType::kLEAKY_RELU, {x}, b->ShapeOf(x), LeakyReluOptions{0.1f});
}

// An operator, or an idiom of several, of those that exporters write between convolutions.
int32_t RandomOperator(FloatBuilder* b, int32_t x) {
  const Shape shape = b->ShapeOf(x);
  const int32_t height = shape[1], width = shape[2], depth = shape[3];
  const auto ints = [b](std::vector<int32_t> values) {
    const auto count = static_cast<int32_t>(values.size());
    return b->Constant({count}, DataType::kInt32, values);
  };
  switch (b->Below(19)) {
    case 0:  // of a size that PyTorch pads on all sides
      return MaxPooled(b, Padded(b, x, -FLT_MAX), 3, 1);
    case 1:
      return b->Node(OpType::kAVERAGE_POOL_2D, {x}, shape, Pooling(3, 1, Padding::kSame));
    case 2:
      return b->Node(OpType::kMAX_POOL_2D, {x}, shape, Pooling(2, 1, Padding::kSame));
    case 3: {
      if (height > 8) return x;
      const Shape twice{1, 2 * height, 2 * width, depth};
      return b->Node(OpType::kRESIZE_NEAREST_NEIGHBOR, {x, ints({2 * height, 2 * width})}, twice,
                     ResizeOptions());
    }
    case 4: {
      const Shape other{1, height + 1, width - 1, depth};
      if (width < 4 || height > 12) return x;
      ResizeOptions options;
      options.half_pixel_centers = true;
      return b->Node(OpType::kRESIZE_BILINEAR, {x, ints({height + 1, width - 1})}, other, options);
    }
    case 5:
      return b->Node(OpType::kTRANSPOSE, {x, ints({0, 2, 1, 3})}, {1, width, height, depth});
    case 6:
      return b->Node(OpType::kPRELU, {x, b->Constant({1, 1, depth}, 0.9f)}, shape);
    case 7:
      return b->Concat(
          b->Node(OpType::kMUL, {x, b->Constant({depth}, 3.0f)}, shape, ElementwiseOptions()), x);
    case 8: {
      std::vector<float> divisors(static_cast<size_t>(depth));
      for (float& divisor : divisors) divisor = 2 + b->Value();
      return b->Node(OpType::kDIV, {x, b->Constant({depth}, DataType::kFloat32, divisors)}, shape,
                     ElementwiseOptions());
    }
    case 9:
      return Leaky(b, x);
    case 10:
      return b->Unary(OpType::kHARD_SWISH, x);
    case 11:
      return b->Node(OpType::kMAXIMUM, {x, b->Constant({1}, 0.5f)}, shape);
    case 12:
      return b->Node(OpType::kMINIMUM,
                     {x, b->Constant({1}, DataType::kFloat32, std::vector<float>{3e38f})}, shape);
    case 13:
      return b->Binary(OpType::kSUB, x, b->Unary(OpType::kLOGISTIC, x));
    case 14: {
      if (height % 2 != 0 || width % 2 != 0 || depth > 8) return x;
      return b->Node(OpType::kSPACE_TO_DEPTH, {x}, {1, height / 2, width / 2, 4 * depth},
                     BlockOptions{2});
    }
    case 15: {
      const int32_t sizes =
          b->Constant({4, 2}, DataType::kInt32, std::vector<int32_t>{0, 0, 0, 1, 1, 0, 0, 0});
      return b->Node(OpType::kPAD, {x, sizes}, {1, height + 1, width + 1, depth});
    }
    case 16:
      return b->Node(OpType::kSLICE, {x, ints({0, 1, 0, 0}), ints({1, height - 1, width, depth})},
                     {1, height - 1, width, depth});
    case 17: {  // squeeze and excite
      ReducerOptions keep;
      keep.keep_dims = true;
      const int32_t mean = b->Node(OpType::kMEAN, {x, ints({1, 2})}, {1, 1, 1, depth}, keep);
      const int32_t gate = b->Unary(OpType::kLOGISTIC, b->Conv(mean, depth, 1));
      return b->Node(OpType::kMUL, {x, gate}, shape, ElementwiseOptions());
    }
    default:
      return b->Unary(OpType::kRELU_N1_TO_1, x);
  }
}

// Convolutions, and between them any operators that the quantizer knows.
std::vector<uint8_t> RandomMixture(uint64_t seed, SampleList* samples) {
  FloatBuilder b(1000 + seed);
  int32_t x = b.Input({1, 8, 8, 3});
  for (int layer = 0; layer < 5; ++layer) {
    x = RandomOperator(&b, x);
    if (b.Below(2) == 0) x = b.Conv(x, 2 + b.Below(6), b.Below(2) == 0 ? 1 : 3);
    if (b.ShapeOf(x)[3] > 16) x = b.Conv(x, 4, 1);
  }
  x = b.FullyConnected(b.Flatten(x), 5);
  b.Output(x);
  *samples = b.MakeSamples(20);
  return b.Build();
}

// A chain of layers with branches.
std::vector<uint8_t> RandomNetwork(uint64_t seed, SampleList* samples) {
  FloatBuilder b(seed);
  int32_t x = b.Input({1, 8, 8, 3});
  for (int layer = 0; layer < 6; ++layer) {
    switch (b.Below(8)) {
      case 0:
        x = b.Conv(x, 1 + b.Below(8), 1);
        break;
      case 1:
        x = b.Unary(OpType::kRELU, b.Conv(x, 1 + b.Below(8), 3));
        break;
      case 2:
        x = b.Unary(OpType::kRELU6, b.Depthwise(x));
        break;
      case 3:
        x = b.Binary(OpType::kADD, x, b.Conv(x, b.ShapeOf(x)[3], 1));
        break;
      case 4:
        x = b.Concat(b.Unary(OpType::kLOGISTIC, x), b.Conv(x, 2, 1));
        break;
      case 5:
        x = b.Binary(OpType::kADD, b.Depthwise(x), b.Constant({b.ShapeOf(x)[3]}, 0.5f));
        break;
      case 6:
        x = b.Binary(OpType::kMUL, b.Conv(x, 4, 1), b.Constant({4}, 2.0f));
        break;
      default:
        x = b.Binary(OpType::kADD, x, b.Unary(OpType::kTANH, x));
    }
  }
  x = b.FullyConnected(b.Flatten(x), 5);
  b.Output(b.Below(2) == 0 ? b.Softmax(x) : x);
  *samples = b.MakeSamples(20);
  return b.Build();
}

Result<Quantized> QuantizeWith(const std::vector<uint8_t>& model, const SampleList& samples,
                               const QuantizeOptions& options = {}) {
  ListedSamples data(samples);
  return Quantize(model, &data, options);
}

// The largest error that each tensor of a quantized graph can have, from the sizes of its steps.
std::vector<double> ErrorBounds(const Graph& q, const std::vector<double>& largest) {
  std::vector<double> bounds(q.tensors.size(), 0);
  const auto step = [&q](int32_t t) { return static_cast<double>(q.tensors[t].scale()); };
  for (const int32_t input : q.inputs) bounds[input] = 0.5 * step(input);
  for (const Node& node : q.nodes) {
    const int32_t output = node.outputs[0];
    double bound = 0;
    if (IsFilter(node)) {
      const Tensor& weights = *q.Input(node, kFilterWeights);
      const size_t channels = weights.quantization.scales.size();
      const size_t inner = ChannelDimension(node) == 3 ? 1 : weights.data.size() / channels;
      const double depth =
          static_cast<double>(static_cast<size_t>(weights.element_count()) / channels);
      std::vector<double> sums(channels, 0);
      for (size_t i = 0; i < static_cast<size_t>(weights.element_count()); ++i) {
        sums[i / inner % channels] += std::abs(static_cast<int8_t>(weights.data[i]));
      }
      const int32_t input = node.inputs[0];
      for (size_t c = 0; c < channels; ++c) {
        const double s = static_cast<double>(weights.quantization.scales[c]);
        bound =
            std::max(bound, sums[c] * s * bounds[input] +
                                depth * s / 2 * (largest[input] + bounds[input]) + s * step(input));
      }
    } else if (node.type == OpType::kMUL) {
      bound = bounds[node.inputs[0]] * (largest[node.inputs[1]] + step(node.inputs[1])) +
              step(node.inputs[1]) * largest[node.inputs[0]];
    } else {
      for (const int32_t input : node.inputs) {
        if (input < 0 || (q.tensors[input].type != DataType::kInt8 &&
                          q.tensors[input].type != DataType::kFloat32)) {
          continue;
        }
        const double own = q.tensors[input].is_constant() ? 0.5 * step(input) : bounds[input];
        const bool is_sum = node.type == OpType::kADD || node.type == OpType::kSUB;
        bound = is_sum ? bound + own : std::max(bound, own);
      }
      if (node.type == OpType::kHARD_SWISH) bound *= 1.5;  // its steepest slope
      // Slopes are at most 1, and those that are rounded meet values.
      if (node.type == OpType::kPRELU) bound += step(node.inputs[1]) * largest[node.inputs[0]];
    }
    bounds[output] = bound + 1.5 * step(output);
  }
  return bounds;
}

class RandomNetworks : public testing::TestWithParam<int> {};

void ExpectErrorsBelowTheSumOfSteps(const std::vector<uint8_t>& model, const SampleList& samples) {
  const auto quantized = QuantizeWith(model, samples, {.bias_correction = false});
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  const Status check = CheckPrescriptions(quantized->model);
  EXPECT_TRUE(check.ok()) << check.message();

  const auto floats = Model::FromBuffer(model), bytes = Model::FromBuffer(quantized->model);
  ASSERT_TRUE(floats.ok() && bytes.ok());
  auto device = OpenDevice({.device = "emu", .threads = 1});
  ASSERT_TRUE(device.ok());
  DeviceDelegate delegate(*std::move(device));
  const auto a = Interpreter::Create(*floats, {.threads = 1});
  const auto b = Interpreter::Create(*bytes, {.threads = 2, .keep_all_tensors = true});
  const auto emulated = Interpreter::Create(*bytes, {.threads = 1, .delegate = &delegate});
  ASSERT_TRUE(a.ok() && b.ok() && emulated.ok());
  const Graph& q = (*b)->graph();
  std::vector<double> largest(q.tensors.size(), 0);
  double error = 0;
  for (const ListedSamples::Sample& sample : samples) {
    for (Interpreter* interpreter : {a->get(), b->get(), emulated->get()}) {
      SetInputs(sample, interpreter);
      ASSERT_TRUE(interpreter->Invoke().ok());
    }
    std::vector<float> wanted, computed;
    for (size_t t = 0; t < q.tensors.size(); ++t) {
      if (q.tensors[t].type != DataType::kInt8 || q.tensors[t].quantization.scales.size() != 1)
        continue;
      const std::span<const uint8_t> bytes_of =
          std::as_const(**b).ConstTensorBytes(static_cast<int32_t>(t));
      ASSERT_EQ(static_cast<int64_t>(bytes_of.size()), q.tensors[t].byte_size())
          << Describe(q, static_cast<int32_t>(t));
      Dequantize(q.tensors[t], bytes_of, &computed);
      for (const float value : computed) {
        largest[t] = std::max(largest[t], std::abs(static_cast<double>(value)));
      }
    }
    const int32_t from = (*a)->graph().outputs[0], to = q.outputs[0];
    Dequantize((*a)->graph().tensors[from], (*a)->TensorBytes(from), &wanted);
    Dequantize(q.tensors[to], (*b)->TensorBytes(to), &computed);
    for (size_t i = 0; i < wanted.size(); ++i) {
      error = std::max(error, std::abs(static_cast<double>(wanted[i] - computed[i])));
    }
    EXPECT_TRUE(std::ranges::equal((*b)->TensorBytes(to),
                                   (*emulated)->TensorBytes((*emulated)->graph().outputs[0])));
  }
  EXPECT_LE(error, ErrorBounds(q, largest)[q.outputs[0]]);
  EXPECT_GT(quantized->report.logits_sqnr_db, 15);
}

TEST_P(RandomNetworks, ErrorsStayBelowTheSumOfSteps) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(static_cast<uint64_t>(GetParam()), &samples);
  ExpectErrorsBelowTheSumOfSteps(model, samples);
}

TEST_P(RandomNetworks, WithAllKindsOfOperatorsErrorsStayBelowTheSumOfSteps) {
  for (int i = 0; i < 3; ++i) {
    SampleList samples;
    const uint64_t seed = static_cast<uint64_t>(3 * GetParam() + i);
    SCOPED_TRACE(seed);
    const std::vector<uint8_t> model = RandomMixture(seed, &samples);
    ExpectErrorsBelowTheSumOfSteps(model, samples);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomNetworks, testing::Range(1, 25));

TEST(Quantizer, IsTheSameForEveryNumberOfThreads) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(3, &samples);
  const auto one = QuantizeWith(model, samples, {.threads = 1});
  const auto three = QuantizeWith(model, samples, {.threads = 3});
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ(one->model, three->model);
  EXPECT_EQ(ToJson(one->report), ToJson(three->report));
}

TEST(Quantizer, EveryOptionGivesAFileThatKeepsToTheSpecification) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(5, &samples);
  const QuantizeOptions variants[] = {
      {.ranges = RangeMethod::kPercentile, .percentile = 99.9},
      {.ranges = RangeMethod::kLeastSquares},
      {.bias_correction = false},
      {.compensate_rounding = true},
      {.activations_16 = true},
      {.input_type = EndType::kFloat, .output_type = EndType::kFloat},
      {.input_type = EndType::kUInt8, .output_type = EndType::kUInt8},
      {.keep_float = {"0"}},
      {.keep_float_below_db = 35},
      {.target_sqnr_db = 45},
  };
  for (const QuantizeOptions& options : variants) {
    const auto quantized = QuantizeWith(model, samples, options);
    ASSERT_TRUE(quantized.ok()) << quantized.status().message();
    const Status check = CheckPrescriptions(quantized->model);
    EXPECT_TRUE(check.ok()) << check.message();
    const Agreement found = Compare(model, quantized->model, samples);
    EXPECT_GT(found.logits_db, 15) << &options - variants;
  }
}

TEST(Quantizer, EndsHaveTheTypesAskedFor) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(7, &samples);
  const auto types = [&](const QuantizeOptions& options) {
    const auto quantized = QuantizeWith(model, samples, options);
    EXPECT_TRUE(quantized.ok()) << quantized.status().message();
    const Graph graph = (*Model::FromBuffer(quantized->model))->graph();
    return std::pair(graph.tensors[graph.inputs[0]].type, graph.tensors[graph.outputs[0]].type);
  };
  EXPECT_EQ(types({}), std::pair(DataType::kInt8, DataType::kInt8));
  EXPECT_EQ(types({.input_type = EndType::kFloat, .output_type = EndType::kFloat}),
            std::pair(DataType::kFloat32, DataType::kFloat32));
  EXPECT_EQ(types({.input_type = EndType::kUInt8}), std::pair(DataType::kUInt8, DataType::kInt8));
  EXPECT_EQ(types({.activations_16 = true}).first, DataType::kInt16);
}

TEST(Quantizer, ReportSaysWhatStaysFloatAndWhy) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(9, &samples);
  const auto quantized = QuantizeWith(model, samples, {.name = "nine", .keep_float = {"1"}});
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  const auto json = nlohmann::json::parse(ToJson(quantized->report));
  EXPECT_EQ(json["model"], "nine");
  EXPECT_EQ(json["layers"][1]["type"], "float");
  EXPECT_EQ(json["layers"][1]["reason"], "it was asked to stay float");
  EXPECT_EQ(json["layers"][0]["type"], "int8");
  int64_t counted = 0;
  for (const auto& count : json["layers"][0]["histogram"]) counted += count.get<int64_t>();
  EXPECT_GT(counted, 0);
  EXPECT_EQ(json["calibration"]["samples"], 20);
  EXPECT_EQ(json["worst"].size(), 8u);
}

TEST(Quantizer, SearchReachesItsTarget) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(11, &samples);
  const auto plain = QuantizeWith(model, samples);
  ASSERT_TRUE(plain.ok());
  const double target = plain->report.logits_sqnr_db + 5;
  const auto searched = QuantizeWith(model, samples, {.target_sqnr_db = target});
  ASSERT_TRUE(searched.ok()) << searched.status().message();
  EXPECT_GE(searched->report.logits_sqnr_db, target);
  EXPECT_FALSE(searched->report.choices.empty());
  int asked = 0;
  QuantizeOptions options;
  options.target_accuracy = 2;
  options.accuracy = [&asked](std::span<const uint8_t>) -> Result<double> { return ++asked; };
  EXPECT_TRUE(QuantizeWith(model, samples, options).ok());
  EXPECT_EQ(asked, 2);
}

// What MAX_POOL is padded with is no value that a range must hold.
TEST(Quantizer, PaddingThatStandsForInfinityStaysOutOfRanges) {
  for (const float value : {-FLT_MAX, -INFINITY, -1e9f}) {
    for (const bool wide : {false, true}) {
      FloatBuilder b(41);
      const int32_t x = Leaky(&b, b.Conv(b.Input({1, 16, 16, 3}), 8, 3));
      b.Output(b.Conv(MaxPooled(&b, Padded(&b, x, value), 3, 2), 4, 1));
      const SampleList samples = b.MakeSamples(16);
      for (const RangeMethod ranges :
           {RangeMethod::kMinMax, RangeMethod::kPercentile, RangeMethod::kLeastSquares}) {
        const auto quantized =
            QuantizeWith(b.Build(), samples, {.ranges = ranges, .activations_16 = wide});
        ASSERT_TRUE(quantized.ok()) << quantized.status().message();
        EXPECT_TRUE(CheckPrescriptions(quantized->model).ok());
        EXPECT_GT(quantized->report.logits_sqnr_db, 28);
        EXPECT_LT(quantized->report.logits_sqnr_db, 60);
        for (const QuantizeReport::Layer& layer : quantized->report.layers) {
          EXPECT_LT(layer.scale, 0.1) << layer.operation;
          EXPECT_GT(layer.sqnr_alone_db, 28) << layer.operation;
          EXPECT_EQ(layer.type, wide ? "16x8" : "int8") << layer.operation;
        }
        EXPECT_THAT(quantized->report.warnings, testing::IsEmpty());
        const Agreement found = Compare(b.Build(), quantized->model, samples);
        EXPECT_GT(found.logits_db, 28);
      }
    }
  }
}

// Nor is what hides places from SOFTMAX: they get next to nothing.
TEST(Quantizer, MasksBeforeSoftmaxHideAsManyAsBefore) {
  for (const float value : {-1e9f, -INFINITY}) {
    FloatBuilder b(43);
    std::vector<float> mask(8 * 8, 0.0f);
    for (size_t i = 0; i < mask.size(); ++i) {
      if (i % 8 > i / 8) mask[i] = value;
    }
    const int32_t scores = b.Node(OpType::kMUL, {b.Input({1, 8, 8}), b.Constant({1}, 2.0f)},
                                  {1, 8, 8}, ElementwiseOptions());
    const int32_t masked =
        b.Node(OpType::kADD, {scores, b.Constant({1, 8, 8}, DataType::kFloat32, mask)}, {1, 8, 8},
               ElementwiseOptions());
    b.Output(b.Softmax(b.Node(
        OpType::kRESHAPE, {masked, b.Constant({2}, DataType::kInt32, std::vector<int32_t>{8, 8})},
        {8, 8}, ReshapeOptions{{8, 8}})));
    const auto quantized = QuantizeWith(b.Build(), b.MakeSamples(16));
    ASSERT_TRUE(quantized.ok()) << quantized.status().message();
    EXPECT_GT(quantized->report.logits_sqnr_db, 25);
    EXPECT_LT(quantized->report.logits_sqnr_db, 60);
    EXPECT_GT(quantized->report.output_sqnr_db, 25);
    const auto model = Model::FromBuffer(quantized->model);
    ASSERT_TRUE(model.ok());
    const auto interpreter = Interpreter::Create(*model, {.threads = 1});
    ASSERT_TRUE(interpreter.ok());
    SetInputs(b.MakeSamples(1)[0], interpreter->get());
    ASSERT_TRUE((*interpreter)->Invoke().ok());
    const std::span<const uint8_t> bytes =
        (*interpreter)->TensorBytes((*interpreter)->graph().outputs[0]);
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (mask[i] < 0) {
        EXPECT_LE(static_cast<int8_t>(bytes[i]), -127) << i;
      }
    }
  }
}

// Values that are large, but not beyond all others, are values.
TEST(Quantizer, LargeConstantsThatMeanSomethingStayInRanges) {
  FloatBuilder b(45);
  const int32_t x = b.Unary(OpType::kRELU, b.Input({1, 6, 6, 2}));
  b.Output(Padded(&b, x, -5));
  b.Output(
      b.Binary(OpType::kADD, x, b.Constant({1}, DataType::kFloat32, std::vector<float>{2000})));
  const auto quantized = QuantizeWith(b.Build(), b.MakeSamples(16));
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  EXPECT_NEAR(quantized->report.outputs[0].low, -5, 0.01);
  EXPECT_GT(quantized->report.outputs[1].high, 1999);
}

// What YOLOv5's head (sigmoid, halves scaled, joined) and v8's (boxes beside classes) end in.
TEST(Quantizer, ScoresBesideBoxesKeepTheirSteps) {
  for (const bool is_v5 : {true, false}) {
    FloatBuilder b(47);
    const int32_t x = b.Input({1, 4, 4, 6});
    const Shape rows{1, 16, 4};
    const auto flat = [&](int32_t tensor) {
      const int32_t shape = b.Constant({3}, DataType::kInt32, std::vector<int32_t>(rows));
      return b.Node(OpType::kRESHAPE, {tensor, shape}, rows, ReshapeOptions{rows});
    };
    const auto pixels = [&](int32_t tensor) {
      return b.Node(OpType::kMUL,
                    {tensor, b.Constant({1}, DataType::kFloat32, std::vector<float>{640})},
                    b.ShapeOf(tensor), ElementwiseOptions());
    };
    int32_t scores = b.Unary(OpType::kLOGISTIC, b.Conv(x, 4, 1));
    const int32_t boxes = pixels(b.Unary(OpType::kLOGISTIC, b.Conv(x, 4, 1)));
    int32_t joined = 0;
    if (is_v5) {
      joined = b.Concat(boxes, scores);
      const int32_t shape = b.Constant({3}, DataType::kInt32, std::vector<int32_t>{1, 16, 8});
      joined = b.Node(OpType::kRESHAPE, {joined, shape}, {1, 16, 8}, ReshapeOptions{{1, 16, 8}});
    } else {
      joined = b.Concat(flat(boxes), flat(scores));
    }
    b.Output(joined);
    const std::vector<uint8_t> model = b.Build();
    const SampleList samples = b.MakeSamples(16);
    const auto quantized = QuantizeWith(model, samples);
    ASSERT_TRUE(quantized.ok()) << quantized.status().message();
    EXPECT_TRUE(CheckPrescriptions(quantized->model).ok());
    const QuantizeReport& report = quantized->report;
    EXPECT_EQ(report.outputs[0].type, "float32");
    ASSERT_EQ(report.choices.size(), 1u);
    EXPECT_THAT(report.choices[0], HasSubstr("parts of very different ranges"));
    ASSERT_EQ(report.parts.size(), 2u);
    EXPECT_GT(report.parts[0].sqnr_db, 25);
    EXPECT_GT(report.parts[1].sqnr_db, 25);

    const auto floats = Model::FromBuffer(model), bytes = Model::FromBuffer(quantized->model);
    ASSERT_TRUE(floats.ok() && bytes.ok());
    const auto a = Interpreter::Create(*floats, {.threads = 1});
    const auto q = Interpreter::Create(*bytes, {.threads = 1});
    ASSERT_TRUE(a.ok() && q.ok());
    float error = 0;
    for (const ListedSamples::Sample& sample : samples) {
      for (Interpreter* interpreter : {a->get(), q->get()}) {
        SetInputs(sample, interpreter);
        ASSERT_TRUE(interpreter->Invoke().ok());
      }
      std::vector<float> wanted, computed;
      const int32_t from = (*a)->graph().outputs[0], to = (*q)->graph().outputs[0];
      Dequantize((*a)->graph().tensors[from], (*a)->TensorBytes(from), &wanted);
      Dequantize((*q)->graph().tensors[to], (*q)->TensorBytes(to), &computed);
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (i % 8 >= 4) error = std::max(error, std::abs(wanted[i] - computed[i]));
      }
    }
    EXPECT_LT(error, 0.02f);

    // Whoever insists gets one scale, and is told what it costs.
    const auto one = QuantizeWith(model, samples, {.output_type = EndType::kOneScale});
    ASSERT_TRUE(one.ok()) << one.status().message();
    EXPECT_EQ(one->report.outputs[0].type, "int8");
    EXPECT_LT(one->report.parts[1].sqnr_db, 10);
    EXPECT_THAT(one->report.warnings, testing::Contains(HasSubstr("a part of output")));
    EXPECT_THAT(ToJson(one->report), HasSubstr("\"parts\": [\n"));
  }
}

TEST(Quantizer, PoorLayersAndLogitsGiveWarnings) {
  // A value far out leaves the others no steps.
  FloatBuilder b(49);
  const int32_t x = b.Input({1, 8});
  b.Output(b.Binary(OpType::kMUL, x, b.Constant({1}, 1.0f)));
  SampleList samples = b.MakeSamples(40);
  for (ListedSamples::Sample& sample : samples) {
    for (float& value : sample[0]) value *= 1e-3f;
  }
  samples[0][0][0] = 10;
  const auto plain = QuantizeWith(b.Build(), samples);
  ASSERT_TRUE(plain.ok());
  samples.resize(1);
  samples.resize(40, {std::vector<float>(8, 0.02f)});
  const std::vector<uint8_t> model = b.Build();
  const auto clipped =
      QuantizeWith(model, samples, {.ranges = RangeMethod::kPercentile, .percentile = 60});
  ASSERT_TRUE(clipped.ok()) << clipped.status().message();
  EXPECT_LT(clipped->report.logits_sqnr_db, 10);
  EXPECT_THAT(clipped->report.warnings, testing::Contains(HasSubstr("logits have an SQNR of")));
  EXPECT_THAT(clipped->report.warnings, testing::Contains(HasSubstr("alone has an SQNR of")));
  EXPECT_THAT(plain->report.warnings, testing::Not(testing::Contains(HasSubstr("SQNR of"))));
}

// The node of TensorFlow Lite that chooses boxes; its outputs.
std::vector<int32_t> AddDetections(FloatBuilder* b, int32_t boxes, int32_t scores, int32_t count) {
  DetectionOptions options;
  options.max_detections = count;
  options.max_classes_per_detection = 1;
  options.num_classes = b->ShapeOf(scores)[2];
  options.score_threshold = 0.1f;
  options.iou_threshold = 0.99f;
  options.y_scale = options.x_scale = options.h_scale = options.w_scale = 5;
  const int32_t anchor_count = b->ShapeOf(boxes)[1];
  std::vector<float> anchors(4 * static_cast<size_t>(anchor_count));
  for (float& number : anchors) number = 0.5f + 0.25f * b->Value();
  Node node;
  node.custom_name = "TFLite_Detection_PostProcess";
  node.options = options;
  node.inputs = {boxes, scores, b->Constant({anchor_count, 4}, DataType::kFloat32, anchors)};
  node.outputs = {b->Tensor({1, count, 4}), b->Tensor({1, count}), b->Tensor({1, count}),
                  b->Tensor({1})};
  b->graph().nodes.push_back(node);
  return node.outputs;
}

// Of nearly equal boxes the bytes may choose others, or another order: what is compared is what all
// are chosen from. Nothing behind the choice is quantized.
TEST(Quantizer, DetectionsAreJudgedByWhatTheyAreChosenFrom) {
  FloatBuilder b(52);
  const int32_t x = b.Conv(b.Input({1, 8, 8, 3}), 8, 3);
  const auto rows = [&b, x](int32_t columns) {
    const Shape shape{1, 64, columns};
    const int32_t sizes = b.Constant({3}, DataType::kInt32, std::vector<int32_t>(shape));
    return b.Node(OpType::kRESHAPE, {b.Conv(x, columns, 1), sizes}, shape, ReshapeOptions{shape});
  };
  const int32_t boxes = rows(4);
  const int32_t scores = b.Unary(OpType::kLOGISTIC, rows(2));
  for (const int32_t output : AddDetections(&b, boxes, scores, 20)) b.Output(output);
  const auto quantized = QuantizeWith(b.Build(), b.MakeSamples(16));
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  EXPECT_GT(quantized->report.logits_sqnr_db, 25);
  EXPECT_LT(quantized->report.output_sqnr_db, quantized->report.logits_sqnr_db);
  for (const QuantizeReport::End& output : quantized->report.outputs) {
    EXPECT_EQ(output.type, "float32");
  }
  const auto model = Model::FromBuffer(quantized->model);
  ASSERT_TRUE(model.ok());
  const Graph& made = (*model)->graph();
  EXPECT_EQ(std::ranges::count(made.nodes, OpType::kDEQUANTIZE, &atollrt::Node::type), 2);
  EXPECT_EQ(made.nodes.back().op_name(), "TFLite_Detection_PostProcess");
}

// Each of which has the one before twice: looking behind all of them again and again takes for
// ever.
TEST(Quantizer, DetectionsOfDetectionsAreLookedAtOnce) {
  FloatBuilder b(54);
  int32_t boxes = b.Input({1, 4, 4});
  for (int i = 0; i < 40; ++i) boxes = AddDetections(&b, boxes, boxes, 4)[0];
  b.Output(boxes);
  const auto quantized = QuantizeWith(b.Build(), b.MakeSamples(2));
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  EXPECT_EQ(quantized->report.layers.size(), 40u);
}

TEST(Quantizer, DivisionByConstantsIsQuantized) {
  FloatBuilder b(51);
  const int32_t x = b.Input({1, 4, 4, 3});
  b.Output(b.Binary(OpType::kDIV, x,
                    b.Constant({3}, DataType::kFloat32, std::vector<float>{3, -7, 0.1f})));
  const auto quantized = QuantizeWith(b.Build(), b.MakeSamples(16));
  ASSERT_TRUE(quantized.ok());
  EXPECT_EQ(quantized->report.layers[0].operation, "MUL");
  EXPECT_EQ(quantized->report.layers[0].type, "int8");
  EXPECT_GT(quantized->report.logits_sqnr_db, 30);
  // What has no reciprocal stays what it is.
  FloatBuilder none(51);
  none.Output(none.Binary(OpType::kDIV, none.Input({1, 4, 4, 3}),
                          none.Constant({1}, DataType::kFloat32, std::vector<float>{1e-39f})));
  SampleList zero(16, {std::vector<float>(48, 0.0f)});
  const auto kept = QuantizeWith(none.Build(), zero);
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_EQ(kept->report.layers[0].operation, "DIV");
}

// x plus the maximum of `count` copies of a constant number, `times` times.
FloatBuilder SumOfTiles(int32_t count, int times) {
  FloatBuilder b(19);
  const int32_t one = b.Constant({1}, DataType::kFloat32, std::vector<float>{1});
  const int32_t repeats = b.Constant({1}, DataType::kInt32, std::vector<int32_t>{count});
  const int32_t axis = b.Constant({1}, DataType::kInt32, std::vector<int32_t>{0});
  int32_t sum = b.Input({1, 8});
  for (int i = 0; i < times; ++i) {
    const int32_t tile = b.Node(OpType::kTILE, {one, repeats}, {count});
    const int32_t most = b.Node(OpType::kREDUCE_MAX, {tile, axis}, {1}, ReducerOptions{true});
    sum = b.Node(OpType::kADD, {sum, most}, {1, 8}, ElementwiseOptions());
  }
  b.Output(sum);
  return b;
}

// Constants are folded while there is room; the other nodes stay, and compute the same.
TEST(Quantizer, ConstantsAreFoldedInProportionToTheModel) {
  const auto nodes = [](int32_t count, int64_t room) {
    const std::vector<uint8_t> bytes = SumOfTiles(count, 3).Build();
    EditedGraph edited;
    edited.source = *Model::FromBorrowed(bytes);
    edited.graph = edited.source->graph();
    edited.room = room < 0 ? RoomForValues(edited.graph) : room;
    const Status status = RewriteFloatGraph(&edited);
    EXPECT_TRUE(status.ok()) << status.message();
    return edited.graph.nodes.size();
  };
  EXPECT_EQ(nodes(10'000, -1), 3u);
  EXPECT_EQ(nodes(10'000, 100'000), 5u);
  EXPECT_EQ(nodes(10'000, 39'999), 9u);
  EXPECT_EQ(nodes(1 << 28, -1), 9u);  // of a gigabyte each
}

// Layers share their weights, and each would have its own, with its factors.
TEST(Quantizer, CopiesOfSharedWeightsAreBounded) {
  FloatBuilder b(20);
  const int32_t weights = b.Constant({8, 3, 3, 8}, 0.1f);
  int32_t x = b.Input({1, 4, 4, 8});
  for (int i = 0; i < 10; ++i) {
    x = b.Node(OpType::kCONV_2D, {x, weights, -1}, b.ShapeOf(x), Conv2DOptions());
    x = b.Binary(OpType::kMUL, x, b.Constant({8}, 1));
  }
  b.Output(x);
  const std::vector<uint8_t> bytes = b.Build();
  for (const int64_t copies : {5, 20}) {
    EditedGraph edited;
    edited.source = *Model::FromBorrowed(bytes);
    edited.graph = edited.source->graph();
    EXPECT_GE(RoomForValues(edited.graph), int64_t{128} << 20);
    edited.room = copies * 8 * 3 * 3 * 8 * 4;
    const Status status = RewriteFloatGraph(&edited);
    EXPECT_EQ(status.ok(), copies == 20) << status.message();
    if (copies != 20) {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(status.message(), HasSubstr("a constant of 2304 bytes, with room for"));
    }
  }
}

TEST(Quantizer, FullyConnectedHasOneScaleForOldReaders) {
  FloatBuilder b(53);
  b.Output(b.FullyConnected(b.Input({1, 16}), 8));
  const std::vector<uint8_t> model = b.Build();
  const SampleList samples = b.MakeSamples(16);
  for (const bool compensate : {false, true}) {
    const auto quantized = QuantizeWith(
        model, samples, {.compensate_rounding = compensate, .per_tensor_fully_connected = true});
    ASSERT_TRUE(quantized.ok()) << quantized.status().message();
    const Status check = CheckPrescriptions(quantized->model);
    EXPECT_TRUE(check.ok()) << check.message();
    const Graph graph = (*Model::FromBuffer(quantized->model))->graph();
    EXPECT_EQ(graph.nodes[0].version, 4);
    EXPECT_EQ(graph.Input(graph.nodes[0], 1)->quantization.scales.size(), 1u);
    EXPECT_GT(Compare(model, quantized->model, samples).logits_db, 30);
  }
}

TEST(Quantizer, ReportNamesTheRangesThatTheSearchChose) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(11, &samples);
  const auto plain = QuantizeWith(model, samples);
  ASSERT_TRUE(plain.ok());
  QuantizeOptions options;
  options.target_accuracy = 2;
  int asked = 0;
  options.accuracy = [&asked](std::span<const uint8_t>) -> Result<double> { return ++asked; };
  const auto searched = QuantizeWith(model, samples, options);
  ASSERT_TRUE(searched.ok());
  EXPECT_THAT(ToJson(plain->report), HasSubstr("\"ranges\": \"min/max\""));
  EXPECT_THAT(ToJson(searched->report), HasSubstr("\"ranges\": \"least squares\""));
}

TEST(Quantizer, SignaturesAndMetadataAreKept) {
  FloatBuilder b(13);
  const int32_t x = b.Input({1, 4, 4, 3});
  const int32_t y = b.Conv(x, 2, 3);
  b.Output(y);
  const std::vector<uint8_t> note = {1, 2, 3, 4};
  const ModelExtras extras{{{"serving_default", 0, {{"x", x}}, {{"y", y}}}}, {{"note", note}}};
  const std::vector<uint8_t> file = b.Build(extras);
  for (const EndType type : {EndType::kQuantized, EndType::kFloat, EndType::kUInt8}) {
    const auto quantized =
        QuantizeWith(file, b.MakeSamples(3), {.input_type = type, .output_type = type});
    ASSERT_TRUE(quantized.ok()) << quantized.status().message();
    const auto model = Model::FromBuffer(quantized->model);
    ASSERT_TRUE(model.ok());
    const Graph& graph = (*model)->graph();
    const ModelExtras& kept = (*model)->extras();
    ASSERT_EQ(kept.signatures.size(), 1u);
    EXPECT_EQ(kept.signatures[0].inputs[0].tensor, graph.inputs[0]);
    EXPECT_EQ(kept.signatures[0].outputs[0].tensor, graph.outputs[0]);
    EXPECT_EQ(graph.tensors[graph.inputs[0]].name, "t0");
    ASSERT_EQ(kept.metadata.size(), 1u);
    EXPECT_TRUE(std::ranges::equal(kept.metadata[0].data, note));
  }
}

TEST(Quantizer, BadSamplesAreNamed) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(15, &samples);
  const auto message = [&model](const SampleList& bad) {
    const auto quantized = QuantizeWith(model, bad);
    EXPECT_EQ(quantized.code(), StatusCode::kInvalidArgument);
    return quantized.status().message();
  };
  EXPECT_THAT(message({}), HasSubstr("no samples"));
  SampleList bad = samples;
  bad[3][0].pop_back();
  EXPECT_THAT(message(bad), HasSubstr("sample 3 has 191 values for input 0 't0'"));
  bad = samples;
  bad[2][0][7] = NAN;
  EXPECT_THAT(message(bad), HasSubstr("sample 2: value 7 of input 0 't0' is nan"));
  bad = samples;
  bad[1][0][0] = INFINITY;
  EXPECT_THAT(message(bad), HasSubstr("is inf"));
  bad = samples;
  bad[4].push_back({1});
  EXPECT_THAT(message(bad), HasSubstr("sample 4 has values for 2 inputs, the model has 1"));
  FloatBuilder b(1);
  b.Output(b.Unary(OpType::kEXP, b.Input({1, 4})));
  SampleList large = b.MakeSamples(4);
  large[2][0][1] = 200;
  const auto quantized = QuantizeWith(b.Build(), large);
  EXPECT_EQ(quantized.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(quantized.status().message(), HasSubstr("on sample 2"));
}

TEST(Quantizer, ConstantAndFewSamplesGiveWarnings) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(17, &samples);
  SampleList constant(20, {std::vector<float>(192, 0.0f)});
  const auto quantized = QuantizeWith(model, constant);
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  EXPECT_THAT(quantized->report.warnings, testing::Contains(HasSubstr("are 0 in all samples")));
  samples.resize(5);
  const auto few = QuantizeWith(model, samples);
  ASSERT_TRUE(few.ok());
  EXPECT_THAT(few->report.warnings, testing::Contains(HasSubstr("5 samples are few")));
}

TEST(Quantizer, SamplesOfAnotherScaleThanTheModelsGiveAWarning) {
  FloatBuilder b(23);
  const int32_t x = b.Input({1, 4, 4, 3});
  const int32_t scale = b.Constant({1}, DataType::kFloat32, std::vector<float>{1.0f / 255});
  b.Output(b.Conv(b.Binary(OpType::kMUL, x, scale), 2, 3));
  SampleList samples = b.MakeSamples(16);
  const auto small = QuantizeWith(b.Build(), samples);
  ASSERT_TRUE(small.ok()) << small.status().message();
  EXPECT_THAT(small->report.warnings, testing::Contains(HasSubstr("scales values of 0 to 255")));
  for (ListedSamples::Sample& sample : samples) {
    for (float& value : sample[0]) value = 127.5f * (value + 1);
  }
  const auto right = QuantizeWith(b.Build(), samples);
  ASSERT_TRUE(right.ok());
  EXPECT_THAT(right->report.warnings, testing::IsEmpty());
}

// Pixels of 0 to 255 for a network that was trained with 0 to 1: its biases say so.
TEST(Quantizer, PixelsForAModelOfSmallValuesGiveAWarning) {
  FloatBuilder b(27);
  const int32_t x = b.Input({1, 8, 8, 3});
  b.Output(b.Unary(OpType::kRELU6, b.Conv(x, 8, 3)));
  SampleList samples = b.MakeSamples(16);
  const auto warnings = [&](float scale) {
    for (ListedSamples::Sample& sample : samples) {
      for (size_t i = 0; i < sample[0].size(); ++i) {
        sample[0][i] = scale * static_cast<float>(i % 11) / 10;
      }
    }
    const auto quantized = QuantizeWith(b.Build(), samples);
    EXPECT_TRUE(quantized.ok());
    return quantized->report.warnings;
  };
  EXPECT_THAT(warnings(255), testing::Contains(HasSubstr("the first layer's biases")));
  EXPECT_THAT(warnings(2), testing::IsEmpty());
}

// The places in a zip archive behind a model count from the beginning of the file.
TEST(Quantizer, FilesOfLabelsAreKept) {
  SampleList samples;
  std::vector<uint8_t> model = RandomNetwork(25, &samples);
  const auto plain = QuantizeWith(model, samples);
  ASSERT_TRUE(plain.ok());
  const auto place = static_cast<uint32_t>(model.size());
  const auto number = [](uint32_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  };
  const std::string local =
      "PK\3\4" + number(10, 2) + number(0, 20) + number(1, 2) + number(0, 2) + "L" + "cat";
  const std::string entry = "PK\1\2" + number(10, 2) + number(10, 2) + number(0, 12) +
                            number(3, 4) + number(3, 4) + number(1, 2) + number(0, 12);
  const auto archive = [&](uint32_t begin) {
    const std::string directory = entry + number(begin, 4) + "L";
    const auto size = static_cast<uint32_t>(directory.size());
    return local + directory + "PK\5\6" + number(0, 4) + number(1, 2) + number(1, 2) +
           number(size, 4) + number(begin + static_cast<uint32_t>(local.size()), 4) + number(0, 2);
  };
  const std::string before = archive(place);
  model.insert(model.end(), before.begin(), before.end());
  const auto quantized = QuantizeWith(model, samples);
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  const std::string wanted = archive(static_cast<uint32_t>(plain->model.size()));
  ASSERT_EQ(quantized->model.size(), plain->model.size() + wanted.size());
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(),
                         quantized->model.end() - static_cast<ptrdiff_t>(wanted.size()),
                         [](char a, uint8_t c) { return static_cast<uint8_t>(a) == c; }));
}

TEST(Quantizer, WhatCannotBeDoneIsSaid) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(19, &samples);
  const auto error = [&](const std::vector<uint8_t>& bytes, const QuantizeOptions& options) {
    const auto quantized = QuantizeWith(bytes, samples, options);
    EXPECT_FALSE(quantized.ok());
    return quantized.status().message();
  };
  EXPECT_THAT(error(model, {.keep_float = {"nobody"}}), HasSubstr("no node is 'nobody'"));
  EXPECT_THAT(error(model, {.ranges = RangeMethod::kPercentile, .percentile = 12}),
              HasSubstr("percentile 12"));
  EXPECT_THAT(error(model, {.activations_16 = true, .input_type = EndType::kUInt8}),
              HasSubstr("int16"));
  const auto once = QuantizeWith(model, samples);
  ASSERT_TRUE(once.ok());
  EXPECT_THAT(error(once->model, {}), HasSubstr("quantized already"));
}

TEST(Quantizer, StopsWhenAsked) {
  SampleList samples;
  const std::vector<uint8_t> model = RandomNetwork(21, &samples);
  for (int limit : {1, 25, 60}) {
    int calls = 0;
    QuantizeOptions options;
    options.progress = [&calls, limit](const QuantizeProgress& progress) {
      EXPECT_LE(progress.done, std::max<int64_t>(progress.total, progress.done));
      return ++calls < limit;
    };
    EXPECT_EQ(QuantizeWith(model, samples, options).code(), StatusCode::kCancelled);
  }
}

}  // namespace
}  // namespace atollrt
