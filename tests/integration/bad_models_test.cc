// SPDX-License-Identifier: Apache-2.0
//
// Models that must be refused, one case per way of being wrong: each gives a Status with the right
// code and a message that has the operator and the name of a tensor, on the CPU and on the emulated
// device. In every model the tensor to blame is called "culprit". And models with one number
// replaced by an extreme one, which must be refused or run: the sanitizers see whether anything
// outside of their memory is touched.
#include <flatbuffers/flexbuffers.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "tests/support/harmless.h"
#include "tests/support/run_model.h"
#include "tflite_generated.h"

namespace atollrt {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

constexpr auto kCorrupt = StatusCode::kCorruptModel;
constexpr auto kUnknown = StatusCode::kUnsupported;
constexpr auto kBadData = StatusCode::kInvalidArgument;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct BadModel {
  const char* name;
  const char* op;
  StatusCode code;
  const char* says;  // the numbers
  void (*build)(ModelBuilder& m);
};

void PrintTo(const BadModel& model, std::ostream* out) { *out << model.name; }

// ---- Models, almost good ------------------------------------------------------------------------

int32_t Blame(ModelBuilder& m, int32_t tensor) {
  m.tensor(tensor).name = "culprit";
  return tensor;
}

Node& Last(ModelBuilder& m) { return m.graph().nodes.back(); }

// The tensor at an input of the last node.
int32_t Operand(ModelBuilder& m, size_t position) { return Last(m).inputs[position]; }

void Finish(ModelBuilder& m, int32_t output) { m.Output(output); }

// Ends with an operator that is to blame, by the name of its output.
void Wrong(ModelBuilder& m, OpType type, std::vector<int32_t> inputs, OpOptions options = {}) {
  Finish(m, Blame(m, m.Node(type, std::move(inputs), {1}, std::move(options))));
}

// The same with several outputs.
void WrongSplit(ModelBuilder& m, OpType type, std::vector<int32_t> inputs, OpOptions options,
                int outputs) {
  Wrong(m, type, std::move(inputs), std::move(options));
  for (int i = 1; i < outputs; ++i) Last(m).outputs.push_back(m.Activation({1}));
}

// 0 input, 1 weights, 2 bias, 3 output.
int32_t Conv(ModelBuilder& m) {
  const int32_t y = m.Conv2D(m.Input({1, 4, 4, 2}), {.channels = 3, .kernel = 3});
  Finish(m, y);
  return y;
}
int32_t Depthwise(ModelBuilder& m) {
  const int32_t y = m.DepthwiseConv2D(m.Input({1, 4, 4, 3}), {.kernel = 3});
  Finish(m, y);
  return y;
}
int32_t Dense(ModelBuilder& m) {
  const int32_t y = m.FullyConnected(m.Input({1, 8}), 3);
  Finish(m, y);
  return y;
}
// All of uint8, with one scale each.
void ConvUInt8(ModelBuilder& m) {
  Conv(m);
  for (const int32_t tensor : {0, 1, 3}) {
    m.tensor(tensor).type = DataType::kUInt8;
    Quantize(m, tensor, 0.5f, 100);
  }
}

Quantization& Scales(ModelBuilder& m, int32_t tensor) {
  return m.tensor(Blame(m, tensor)).quantization;
}

template <typename T>
void SetOption(ModelBuilder& m, int32_t T::*field, int32_t value) {
  std::get<T>(Last(m).options).*field = value;
}

void ConvWith(ModelBuilder& m, int32_t Conv2DOptions::*field, int32_t value) {
  Blame(m, Conv(m));
  SetOption(m, field, value);
}
void PoolWith(ModelBuilder& m, int32_t Pool2DOptions::*field, int32_t value) {
  Finish(m, Blame(m, m.MaxPool(m.Input({1, 4, 4, 2}), {})));
  SetOption(m, field, value);
}

int32_t Handle(ModelBuilder& m, const char* name) {
  const int32_t handle = m.Node(OpType::kVAR_HANDLE, {}, {}, VarHandleOptions{"", name});
  m.tensor(handle).type = DataType::kResource;
  m.tensor(handle).quantization = {};
  return handle;
}

void Assign(ModelBuilder& m, int32_t handle, int32_t value) {
  m.Node(OpType::kASSIGN_VARIABLE, {handle, value}, {});
  Last(m).outputs.clear();
}

// What custom operators keep as flexbuffers lives as long as the tests.
std::span<const uint8_t> Keep(flexbuffers::Builder* builder) {
  static std::deque<Bytes>* const kept = new std::deque<Bytes>;
  builder->Finish();
  kept->push_back(builder->GetBuffer());
  return kept->back();
}

void Detection(ModelBuilder& m, void (*change)(std::map<std::string, double>*)) {
  std::map<std::string, double> options{{"max_detections", 10},
                                        {"max_classes_per_detection", 1},
                                        {"num_classes", 2},
                                        {"nms_score_threshold", 0.5},
                                        {"nms_iou_threshold", 0.5},
                                        {"y_scale", 10},
                                        {"x_scale", 10},
                                        {"h_scale", 5},
                                        {"w_scale", 5}};
  change(&options);
  flexbuffers::Builder builder;
  builder.Map([&] {
    for (const auto& [key, value] : options) {
      if (value == std::trunc(value) && std::isfinite(value)) {
        builder.Int(key.c_str(), static_cast<int64_t>(value));
      } else {
        builder.Double(key.c_str(), value);
      }
    }
  });
  const int32_t boxes = TypedInput<float>(m, {1, 6, 4});
  const int32_t scores = TypedInput<float>(m, {1, 6, 3});
  const int32_t anchors = TypedInput<float>(m, {6, 4});
  Wrong(m, OpType::kCUSTOM, {boxes, scores, anchors});
  for (int i = 0; i < 3; ++i) Last(m).outputs.push_back(m.Activation({}));
  for (const int32_t output : Last(m).outputs) SetType<float>(m, output);
  Last(m).custom_name = "TFLite_Detection_PostProcess";
  Last(m).custom_options = Keep(&builder);
}

void Posenet(ModelBuilder& m, double detections, double stride, double threshold, double radius,
             Shape map = {1, 33, 33}, int inputs = 3) {
  flexbuffers::Builder builder;
  builder.Map([&] {
    builder.Int("max_detections", static_cast<int64_t>(detections));
    builder.Int("stride", static_cast<int64_t>(stride));
    builder.Double("score_threshold", threshold);
    builder.Double("nms_radius", radius);
  });
  std::vector<int32_t> maps;
  for (const int32_t channels : {17, 34, 64, 34}) {
    Shape shape = map;
    shape.push_back(channels);
    maps.push_back(TypedInput<float>(m, shape));
  }
  maps.resize(static_cast<size_t>(inputs));
  Wrong(m, OpType::kCUSTOM, maps);
  for (int i = 0; i < inputs; ++i) Last(m).outputs.push_back(m.Activation({}));
  for (const int32_t output : Last(m).outputs) SetType<float>(m, output);
  Last(m).custom_name = "PosenetDecoderOp";
  Last(m).custom_options = Keep(&builder);
}

int32_t Svdf(ModelBuilder& m, int32_t rank) {
  const int32_t x = m.Input({1, 4});
  const int32_t features = m.Constant(DataType::kInt8, {6, 4}, Bytes(24, 1));
  const int32_t time = m.Constant(DataType::kInt16, {6, 5}, Bytes(60, 1));
  Quantize(m, features, 0.5f, 0);
  Quantize(m, time, 0.5f, 0);
  const int32_t state = m.Activation({1, 30});
  m.tensor(state).type = DataType::kInt16;
  m.tensor(state).is_variable = true;
  Quantize(m, state, 0.5f, 0);
  const int32_t y =
      m.Node(OpType::kSVDF, {x, features, time, -1, state}, {1, 3}, SvdfOptions{rank});
  Finish(m, y);
  return y;
}

// ---- The table ----------------------------------------------------------------------------------

const BadModel kBadModels[] = {
    // Scales and zero points.
    {"WeightsWithTooFewScales", "CONV_2D", kCorrupt, "2 scales for dimension 0",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 1).scales.pop_back();
       Scales(m, 1).zero_points.pop_back();
     }},
    {"DepthwiseWeightsWithTooManyScales", "DEPTHWISE_CONV_2D", kCorrupt, "4 scales for dimension 3",
     [](ModelBuilder& m) {
       Depthwise(m);
       Scales(m, 1).scales.push_back(1);
       Scales(m, 1).zero_points.push_back(0);
     }},
    {"ScalesAlongInputChannels", "CONV_2D", kCorrupt, "2 scales along dimension 3",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 1) = {.scales = {1, 1}, .zero_points = {0, 0}, .dimension = 3};
     }},
    {"ScalesAlongNoDimension", "FULLY_CONNECTED", kCorrupt, "quantized dimension 2",
     [](ModelBuilder& m) {
       Dense(m);
       Scales(m, 1).dimension = 2;
     }},
    {"ScalesAlongANegativeDimension", "FULLY_CONNECTED", kCorrupt, "quantized dimension -1",
     [](ModelBuilder& m) {
       Dense(m);
       Scales(m, 1).dimension = -1;
     }},
    {"FewerZeroPointsThanScales", "CONV_2D", kCorrupt, "3 scales but 2 zero points",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 1).zero_points.pop_back();
     }},
    {"UnsignedWeightsPerChannel", "CONV_2D", kCorrupt, "have 3 scales, must have 1",
     [](ModelBuilder& m) {
       ConvUInt8(m);
       Scales(m, 1) = {.scales = {1, 1, 1}, .zero_points = {0, 0, 0}};
     }},
    {"ActivationPerChannel", "ADD", kCorrupt, "has 2 scales, must have one",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Finish(m, m.Add(x, m.Input({1, 2})));
       Scales(m, x) = {.scales = {1, 1}, .zero_points = {0, 0}, .dimension = 1};
     }},
    {"InputScaleOfZero", "CONV_2D", kCorrupt, "scale[0] is 0",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 0).scales = {0};
     }},
    {"OutputScaleOfZero", "SOFTMAX", kCorrupt, "scale[0] is 0",
     [](ModelBuilder& m) {
       const int32_t y = m.Softmax(m.Input({1, 4}));
       Finish(m, y);
       Scales(m, y).scales = {0};
     }},
    {"ScaleThatIsNoNumber", "DEPTHWISE_CONV_2D", kCorrupt, "scale[1] is nan",
     [](ModelBuilder& m) {
       Depthwise(m);
       Scales(m, 1).scales[1] = kNan;
     }},
    {"InfiniteScale", "ADD", kCorrupt, "scale[0] is inf",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Finish(m, m.Add(x, m.Input({1, 2})));
       Scales(m, x).scales = {kInfinity};
     }},
    {"MinusInfiniteScale", "CONV_2D", kCorrupt, "scale[2] is -inf",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 1).scales[2] = -kInfinity;
     }},
    {"NegativeScale", "AVERAGE_POOL_2D", kCorrupt, "scale[0] is -0.5",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 4, 4, 2});
       Finish(m, m.AveragePool(x, {}));
       Scales(m, x).scales = {-0.5f};
     }},
    {"InputWithoutScale", "CONV_2D", kCorrupt, "has 0 scales",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 0) = {};
     }},
    {"WeightsWithoutScale", "CONV_2D", kCorrupt, "have no scale",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 1) = {};
     }},
    {"OutputWithoutScale", "FULLY_CONNECTED", kCorrupt, "has 0 scales",
     [](ModelBuilder& m) { Scales(m, Dense(m)) = {}; }},
    {"ZeroPointAboveInt8", "CONV_2D", kCorrupt, "zero_point[0] is 128",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 0).zero_points = {128};
     }},
    {"ZeroPointBelowInt8", "CONV_2D", kCorrupt, "zero_point[0] is -129",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 3).zero_points = {-129};
     }},
    {"ZeroPointBelowUInt8", "CONV_2D", kCorrupt, "zero_point[0] is -1",
     [](ModelBuilder& m) {
       ConvUInt8(m);
       Scales(m, 0).zero_points = {-1};
     }},
    {"ZeroPointAboveUInt8", "CONV_2D", kCorrupt, "zero_point[0] is 256",
     [](ModelBuilder& m) {
       ConvUInt8(m);
       Scales(m, 1).zero_points = {256};
     }},
    {"ZeroPointAboveInt16", "QUANTIZE", kCorrupt, "zero_point[0] is 32768",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       m.tensor(x).type = DataType::kInt16;
       Finish(m, m.Node(OpType::kQUANTIZE, {x}, {1, 2}));
       Scales(m, x).zero_points = {32768};
     }},
    {"ZeroPointAboveInt32", "QUANTIZE", kCorrupt, "zero_point[0] is 4294967296",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       m.tensor(x).type = DataType::kInt32;
       Finish(m, m.Node(OpType::kQUANTIZE, {x}, {1, 2}));
       Scales(m, x).zero_points = {int64_t{1} << 32};
     }},
    {"ZeroPointOfSignedWeights", "CONV_2D", kCorrupt, "zero_point[1] = 1, must be 0",
     [](ModelBuilder& m) {
       Conv(m);
       Scales(m, 1).zero_points[1] = 1;
     }},
    {"SoftmaxOfAnotherScale", "SOFTMAX", kCorrupt, "must have 1/256 and -128",
     [](ModelBuilder& m) {
       const int32_t y = m.Softmax(m.Input({1, 4}));
       Finish(m, y);
       Scales(m, y).scales = {0.01f};
     }},
    {"LogisticOfAnotherZeroPoint", "LOGISTIC", kCorrupt, "zero point 0",
     [](ModelBuilder& m) {
       const int32_t y = m.Logistic(m.Input({1, 4}));
       Finish(m, y);
       Scales(m, y).zero_points = {0};
     }},
    {"PoolThatRescales", "MAX_POOL_2D", kCorrupt, "must be quantized alike",
     [](ModelBuilder& m) {
       const int32_t y = m.MaxPool(m.Input({1, 4, 4, 2}), {});
       Finish(m, y);
       Scales(m, y).scales = {0.5f};
     }},
    {"ConcatenationOfSignedBytesThatRescales", "CONCATENATION", kCorrupt, "quantized alike",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Finish(m, m.Concatenation({x, m.Input({1, 2})}, 1));
       Scales(m, x).zero_points = {0};
     }},
    {"SumOfTooSmallAScale", "ADD", kCorrupt, "is too small",
     [](ModelBuilder& m) {
       const int32_t y = m.Add(m.Input({1, 2}), m.Input({1, 2}));
       Finish(m, y);
       Scales(m, y).scales = {1e-9f};
     }},

    // Biases.
    {"BiasOfAnotherLength", "CONV_2D", kCorrupt, "bias has 4 elements for 3 output channels",
     [](ModelBuilder& m) {
       Blame(m, Conv(m));
       Last(m).inputs[2] = m.Integers({4}, {1, 2, 3, 4});
     }},
    {"BiasOfADenseLayerOfAnotherLength", "FULLY_CONNECTED", kCorrupt, "bias has 2 elements",
     [](ModelBuilder& m) {
       Blame(m, Dense(m));
       Last(m).inputs[2] = m.Integers({2}, {1, 2});
     }},
    {"BiasWithoutElements", "DEPTHWISE_CONV_2D", kCorrupt, "bias has 0 elements",
     [](ModelBuilder& m) {
       Blame(m, Depthwise(m));
       Last(m).inputs[2] = m.Integers({0}, {});
     }},
    {"BiasOfBytes", "CONV_2D", kCorrupt, "has type int8, must be int32",
     [](ModelBuilder& m) {
       Conv(m);
       Last(m).inputs[2] = Blame(m, m.Constant(DataType::kInt8, {3}, {1, 2, 3}));
     }},
    {"BiasThatIsComputed", "CONV_2D", kUnknown, "is not constant",
     [](ModelBuilder& m) {
       Conv(m);
       Last(m).inputs[2] = Blame(m, TypedInput<int32_t>(m, {3}));
     }},
    {"BiasOfAnotherScale", "CONV_2D", kCorrupt, "has scale 9",
     [](ModelBuilder& m) {
       ConvUInt8(m);
       Quantize(m, Blame(m, 2), 9, 0);
     }},
    {"WeightsThatAreComputed", "CONV_2D", kUnknown, "are not constant",
     [](ModelBuilder& m) {
       Conv(m);
       Last(m).inputs[1] = Blame(m, m.Input({3, 3, 3, 2}));
     }},
    {"WeightsOfAnotherType", "CONV_2D", kCorrupt, "have type uint8, must be int8",
     [](ModelBuilder& m) {
       Conv(m);
       m.tensor(Blame(m, 1)).type = DataType::kUInt8;
     }},

    // Buffers.
    {"BufferShorterThanTheWeights", "CONV_2D", kCorrupt, "needs 54 bytes, its buffer has 53",
     [](ModelBuilder& m) {
       Conv(m);
       m.tensor(Blame(m, 1)).data = m.tensor(1).data.first(53);
     }},
    {"BufferShorterThanTheBias", "CONV_2D", kCorrupt, "needs 12 bytes, its buffer has 11",
     [](ModelBuilder& m) {
       Conv(m);
       m.tensor(Blame(m, 2)).data = m.tensor(2).data.first(11);
     }},
    {"BufferShorterThanTheAxes", "MEAN", kCorrupt, "needs 8 bytes, its buffer has 4",
     [](ModelBuilder& m) {
       Finish(m, m.Mean(m.Input({1, 3, 4}), {1, 2}));
       const int32_t axes = Blame(m, Operand(m, 1));
       m.tensor(axes).data = m.tensor(axes).data.first(4);
     }},
    {"ConstantWithoutBuffer", "MEAN", kCorrupt, "before anything has written it",
     [](ModelBuilder& m) {
       Finish(m, m.Mean(m.Input({1, 3, 4}), {1}));
       m.tensor(Blame(m, Operand(m, 1))).data = {};
     }},

    // Shapes.
    {"DynamicShape", "CONV_2D", kUnknown, "dynamic shape [-1, 4, 4, 2]",
     [](ModelBuilder& m) {
       Conv(m);
       m.tensor(Blame(m, 0)).shape[0] = -1;
     }},
    {"NegativeDimension", "CONV_2D", kUnknown, "dynamic shape [1, -2147483648, 4, 2]",
     [](ModelBuilder& m) {
       Conv(m);
       m.tensor(Blame(m, 0)).shape[1] = INT32_MIN;
     }},
    {"NegativeDimensionOfWeights", "CONV_2D", kUnknown, "dynamic shape [3, 3, 3, -2]",
     [](ModelBuilder& m) {
       Conv(m);
       m.tensor(Blame(m, 1)).shape[3] = -2;
     }},
    {"DimensionOfZero", "CONV_2D", kCorrupt, "sizes must be at least 1",
     [](ModelBuilder& m) {
       Conv(m);
       m.tensor(Blame(m, 0)).shape[2] = 0;
     }},
    {"MoreThan2GiB", "CONV_2D", kCorrupt, "shape [1, 65536, 32768, 2] of int8",
     [](ModelBuilder& m) {
       Conv(m);
       m.tensor(Blame(m, 0)).shape = {1, 65536, 32768, 2};
     }},
    {"MoreThan64Bits", "ADD", kCorrupt, "of int8 is larger than",
     [](ModelBuilder& m) {
       const int32_t x = Blame(m, m.Input(Shape(9, INT32_MAX)));
       Finish(m, m.Add(x, x));
     }},
    {"MoreThan64BitsBesideAZero", "TRANSPOSE", kCorrupt, "of int8 is larger than",
     [](ModelBuilder& m) {
       const int32_t x = Blame(m, m.Input({0, INT32_MAX, INT32_MAX, INT32_MAX}));
       Finish(m, m.Node(OpType::kTRANSPOSE, {x, m.Integers({4}, {3, 2, 1, 0})}, {}));
     }},
    {"MoreThan64BitsOfStrings", "SHAPE", kCorrupt, "of string is larger than",
     [](ModelBuilder& m) {
       const int32_t x = Blame(m, m.Input(Shape(5, INT32_MAX)));
       m.tensor(x).type = DataType::kString;
       Finish(m, SetType<int32_t>(m, m.Node(OpType::kSHAPE, {x}, {})));
     }},
    {"TooLargeByPadding", "PAD", kUnknown, "below 2147483647 bytes",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Wrong(m, OpType::kPAD, {x, m.Integers({2, 2}, {0, 1 << 20, 1 << 20, 0})});
     }},
    {"OverflowByPadding", "PAD", kCorrupt, "paddings of dimension 1 are 2147483647 and 2147483647",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Wrong(m, OpType::kPAD, {x, m.Integers({2, 2}, {0, 0, INT32_MAX, INT32_MAX})});
     }},
    {"NegativePadding", "PAD", kCorrupt, "paddings of dimension 0 are -1 and 0",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({4, 2});
       Wrong(m, OpType::kPAD, {x, m.Integers({2, 2}, {-1, 0, 0, 0})});
     }},
    {"PaddingOf64BitsThatOverflows", "PAD", kCorrupt, "are 9223372036854775807 and",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({4});
       Bytes ends(16, 0xFF);
       ends[7] = ends[15] = 0x7F;
       Wrong(m, OpType::kPAD, {x, m.Constant(DataType::kInt64, {1, 2}, ends)});
     }},
    {"TooLargeByTiling", "TILE", kUnknown, "below 2147483647 bytes",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({4, 4});
       Wrong(m, OpType::kTILE, {x, m.Integers({2}, {65536, 65536})});
     }},
    {"OverflowByTiling", "TILE", kCorrupt, "of dimension 0",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({4, 4});
       Wrong(m, OpType::kTILE, {x, m.Integers({2}, {INT32_MAX, 1})});
     }},
    {"NegativeMultiple", "TILE", kCorrupt, "multiple 1 is -1",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({4, 4});
       Wrong(m, OpType::kTILE, {x, m.Integers({2}, {1, -1})});
     }},
    {"TooLargeByResizing", "RESIZE_BILINEAR", kUnknown, "below 2147483647 bytes",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2, 2, 1});
       Wrong(m, OpType::kRESIZE_BILINEAR, {x, m.Integers({2}, {INT32_MAX, INT32_MAX})});
     }},
    {"ResizeToNothing", "RESIZE_NEAREST_NEIGHBOR", kCorrupt, "the size is 0 x 4",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2, 2, 1});
       Wrong(m, OpType::kRESIZE_NEAREST_NEIGHBOR, {x, m.Integers({2}, {0, 4})});
     }},
    {"ResizeInTwoModes", "RESIZE_BILINEAR", kCorrupt, "both set",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2, 2, 1});
       Wrong(m, OpType::kRESIZE_BILINEAR, {x, m.Integers({2}, {4, 4})}, ResizeOptions{true, true});
     }},
    {"TooLargeByBroadcasting", "ADD", kUnknown, "below 2147483647 bytes",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({65536, 1});
       Finish(m, Blame(m, m.Add(x, m.Input({1, 65536}))));
     }},
    {"TooLargeProduct", "BATCH_MATMUL", kUnknown, "below 2147483647 bytes",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({65536, 1});
       Wrong(m, OpType::kBATCH_MATMUL, {x, m.Input({1, 65536})}, BatchMatMulOptions{});
     }},
    {"ProductOfMatricesThatDoNotFit", "BATCH_MATMUL", kCorrupt, "[2, 3] and [2, 3]",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({2, 3});
       Wrong(m, OpType::kBATCH_MATMUL, {x, m.Input({2, 3})}, BatchMatMulOptions{});
     }},
    {"TooLargeTransposedConvolution", "TRANSPOSE_CONV", kUnknown, "below 2147483647 bytes",
     [](ModelBuilder& m) {
       const int32_t shape = m.Integers({4}, {1, 65536, 65536, 1});
       const int32_t weights = m.Constant(DataType::kInt8, {1, 1, 1, 1}, {1});
       Quantize(m, weights, 1, 0);
       Wrong(m, OpType::kTRANSPOSE_CONV, {shape, weights, m.Input({1, 4, 4, 1})}, Conv2DOptions{});
     }},
    {"NegativeTransposedConvolution", "TRANSPOSE_CONV", kCorrupt, "has a size of -4",
     [](ModelBuilder& m) {
       const int32_t shape = m.Integers({4}, {1, -4, 4, 1});
       const int32_t weights = m.Constant(DataType::kInt8, {1, 1, 1, 1}, {1});
       Quantize(m, weights, 1, 0);
       Wrong(m, OpType::kTRANSPOSE_CONV, {shape, weights, m.Input({1, 4, 4, 1})}, Conv2DOptions{});
     }},
    {"OverflowByBlocks", "SPACE_TO_BATCH_ND", kCorrupt, "",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 4, 4, 1});
       Wrong(m, OpType::kSPACE_TO_BATCH_ND,
             {x, m.Integers({2}, {INT32_MAX, INT32_MAX}), m.Integers({2, 2}, {0, 0, 0, 0})});
     }},
    {"BlockOfZero", "BATCH_TO_SPACE_ND", kCorrupt, "block size 1 is 0",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({4, 4, 4, 1});
       Wrong(m, OpType::kBATCH_TO_SPACE_ND,
             {x, m.Integers({2}, {2, 0}), m.Integers({2, 2}, {0, 0, 0, 0})});
     }},
    {"CropsLargerThanTheImage", "BATCH_TO_SPACE_ND", kCorrupt, "crops 5 and 4 of dimension 1",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({4, 4, 4, 1});
       Wrong(m, OpType::kBATCH_TO_SPACE_ND,
             {x, m.Integers({2}, {2, 2}), m.Integers({2, 2}, {5, 4, 0, 0})});
     }},
    {"DepthBlockOfZero", "DEPTH_TO_SPACE", kCorrupt, "blocks of size 0",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kDEPTH_TO_SPACE, {m.Input({1, 2, 2, 4})}, BlockOptions{0});
     }},
    {"DepthBlockThatOverflows", "DEPTH_TO_SPACE", kCorrupt, "blocks of size 2147483647",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kDEPTH_TO_SPACE, {m.Input({1, 2, 2, 4})}, BlockOptions{INT32_MAX});
     }},
    {"SpaceBlockThatDoesNotDivide", "SPACE_TO_DEPTH", kCorrupt, "blocks of size 3",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kSPACE_TO_DEPTH, {m.Input({1, 2, 2, 4})}, BlockOptions{3});
     }},
    {"ReshapeToAnotherCount", "RESHAPE", kCorrupt, "8 elements cannot become 9",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kRESHAPE, {m.Input({2, 4})}, ReshapeOptions{{3, 3}});
     }},
    {"ReshapeThatOverflows", "RESHAPE", kCorrupt, "is 2147483647",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kRESHAPE, {m.Input({2, 4})}, ReshapeOptions{Shape(4, INT32_MAX)});
     }},
    {"ReshapeToANegativeSize", "RESHAPE", kCorrupt, "size 1 of the target is -2",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kRESHAPE, {m.Input({2, 4})}, ReshapeOptions{{4, -2}});
     }},
    {"ReshapeToASizeThatIsComputed", "RESHAPE", kUnknown, "is computed at run time",
     [](ModelBuilder& m) {
       const int32_t target = TypedInput<int32_t>(m, {1});
       Wrong(m, OpType::kRESHAPE, {m.Input({2, 4}), target}, ReshapeOptions{});
     }},
    {"ReshapeToTooManySizes", "RESHAPE", kCorrupt, "new_shape has 65 numbers",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kRESHAPE, {m.Input({1})}, ReshapeOptions{Shape(65, 1)});
     }},
    {"SizesThatDoNotBroadcast", "MUL", kCorrupt, "[1, 3] and [1, 4]",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 3});
       Wrong(m, OpType::kMUL, {x, m.Input({1, 4})}, ElementwiseOptions{});
     }},
    {"ImageOfThreeDimensions", "CONV_2D", kCorrupt, "must have 4 dimensions",
     [](ModelBuilder& m) {
       Conv(m);
       m.tensor(Blame(m, 0)).shape = {4, 4, 2};
     }},
    {"ChannelsThatDoNotFit", "CONV_2D", kCorrupt, "input with 3 channels",
     [](ModelBuilder& m) {
       Blame(m, Conv(m));
       m.tensor(0).shape = {1, 4, 4, 3};
     }},
    {"DepthThatDoesNotFit", "FULLY_CONNECTED", kCorrupt, "rows of 8",
     [](ModelBuilder& m) {
       Blame(m, Dense(m));
       m.tensor(0).shape = {1, 9};
     }},
    {"WindowThatDoesNotFit", "AVERAGE_POOL_2D", kCorrupt, "a window of 5x5",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.AveragePool(m.Input({1, 4, 4, 2}), {.size = 5, .stride = 1})));
     }},

    // Graphs.
    {"NodeThatReadsItself", "RELU", kCorrupt, "before anything has written it",
     [](ModelBuilder& m) {
       const int32_t y = Blame(m, m.Relu(m.Input({1, 2})));
       Finish(m, y);
       Last(m).inputs = {y};
     }},
    {"Cycle", "ADD", kCorrupt, "before anything has written it",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       const int32_t a = m.Add(x, x);
       const int32_t b = Blame(m, m.Relu(a));
       m.graph().nodes[0].inputs[1] = b;
       Finish(m, b);
     }},
    {"DanglingInput", "ADD", kCorrupt, "before anything has written it",
     [](ModelBuilder& m) { Finish(m, m.Add(m.Input({1, 2}), Blame(m, m.Activation({1, 2})))); }},
    {"SecondWriter", "RELU", kCorrupt, "which is written already",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       const int32_t y = Blame(m, m.Relu(x));
       m.Relu(x);
       Last(m).outputs = {y};
       Finish(m, y);
     }},
    {"WriterOfAnInput", "RELU", kCorrupt, "which is written already",
     [](ModelBuilder& m) {
       const int32_t x = Blame(m, m.Input({1, 2}));
       m.Relu(x);
       Last(m).outputs = {x};
     }},
    {"WriterOfAConstant", "CONV_2D", kCorrupt, "which is a constant",
     [](ModelBuilder& m) {
       Conv(m);
       Last(m).outputs = {Blame(m, 2)};
     }},
    {"ConstantInput", "CONV_2D", kCorrupt, "is an input of the model and a constant",
     [](ModelBuilder& m) {
       Conv(m);
       m.graph().inputs.push_back(Blame(m, 1));
     }},
    {"InputBeyondTheTensors", "CONV_2D", kCorrupt, "input tensor index 4, but there are 4",
     [](ModelBuilder& m) {
       Blame(m, Conv(m));
       Last(m).inputs[1] = 4;
     }},
    {"NegativeInput", "CONV_2D", kCorrupt, "input tensor index -2147483648",
     [](ModelBuilder& m) {
       Blame(m, Conv(m));
       Last(m).inputs[1] = INT32_MIN;
     }},
    {"IntermediateBeyondTheTensors", "CONV_2D", kCorrupt, "intermediate tensor index 9",
     [](ModelBuilder& m) {
       Blame(m, Conv(m));
       Last(m).intermediates = {9};
     }},
    {"AbsentInput", "ADD", kCorrupt, "input 1 is absent",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.Add(m.Input({1, 2}), m.Input({1, 2}))));
       Last(m).inputs[1] = -1;
     }},
    {"TooFewInputs", "CONV_2D", kCorrupt, "has 1 inputs",
     [](ModelBuilder& m) {
       Blame(m, Conv(m));
       Last(m).inputs.resize(1);
     }},
    {"TooManyInputs", "RELU", kCorrupt, "has 2 inputs",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Finish(m, Blame(m, m.Relu(x)));
       Last(m).inputs.push_back(x);
     }},
    {"TooManyOutputs", "RELU", kCorrupt, "has 2 outputs",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.Relu(m.Input({1, 2}))));
       Last(m).outputs.push_back(m.Activation({1, 2}));
     }},
    {"MissingOptions", "MAX_POOL_2D", kCorrupt, "options are missing",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.MaxPool(m.Input({1, 4, 4, 2}), {})));
       Last(m).options = {};
     }},
    {"NoOptions", "MAX_POOL_2D", kCorrupt, "options are missing",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.MaxPool(m.Input({1, 4, 4, 2}), {})));
       Last(m).options = std::monostate();
     }},
    {"UnknownVersion", "RELU", kUnknown, "version 99",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.Relu(m.Input({1, 2}))));
       Last(m).version = 99;
     }},

    // Options.
    {"StrideOfZero", "CONV_2D", kCorrupt, "stride_h is 0",
     [](ModelBuilder& m) { ConvWith(m, &Conv2DOptions::stride_h, 0); }},
    {"NegativeStride", "CONV_2D", kCorrupt, "stride_w is -1",
     [](ModelBuilder& m) { ConvWith(m, &Conv2DOptions::stride_w, -1); }},
    {"HugeStride", "CONV_2D", kCorrupt, "stride_w is 2147483647",
     [](ModelBuilder& m) { ConvWith(m, &Conv2DOptions::stride_w, INT32_MAX); }},
    {"DilationOfZero", "CONV_2D", kCorrupt, "dilation_h is 0",
     [](ModelBuilder& m) { ConvWith(m, &Conv2DOptions::dilation_h, 0); }},
    {"HugeDilation", "CONV_2D", kCorrupt, "dilation_w is 65536",
     [](ModelBuilder& m) { ConvWith(m, &Conv2DOptions::dilation_w, 65536); }},
    {"WindowOfZero", "MAX_POOL_2D", kCorrupt, "filter_height is 0",
     [](ModelBuilder& m) { PoolWith(m, &Pool2DOptions::filter_h, 0); }},
    {"NegativeWindow", "MAX_POOL_2D", kCorrupt, "filter_width is -3",
     [](ModelBuilder& m) { PoolWith(m, &Pool2DOptions::filter_w, -3); }},
    {"PoolStrideOfZero", "MAX_POOL_2D", kCorrupt, "stride_w is 0",
     [](ModelBuilder& m) { PoolWith(m, &Pool2DOptions::stride_w, 0); }},
    {"UnknownPadding", "CONV_2D", kCorrupt, "padding 7 does not exist",
     [](ModelBuilder& m) {
       Blame(m, Conv(m));
       std::get<Conv2DOptions>(Last(m).options).padding = static_cast<Padding>(7);
     }},
    {"UnknownActivation", "CONV_2D", kCorrupt, "fused activation -3 does not exist",
     [](ModelBuilder& m) {
       Blame(m, Conv(m));
       std::get<Conv2DOptions>(Last(m).options).activation = static_cast<Activation>(-3);
     }},
    {"FusedTanh", "ADD", kUnknown, "fused activation TANH",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.Add(m.Input({1, 2}), m.Input({1, 2}))));
       std::get<ElementwiseOptions>(Last(m).options).activation = Activation::kTanh;
     }},
    {"BetaOfZero", "SOFTMAX", kCorrupt, "beta is 0",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.Softmax(m.Input({1, 4}))));
       std::get<SoftmaxOptions>(Last(m).options).beta = 0;
     }},
    {"BetaThatIsNoNumber", "SOFTMAX", kCorrupt, "beta is not finite",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.Softmax(m.Input({1, 4}))));
       std::get<SoftmaxOptions>(Last(m).options).beta = kNan;
     }},
    {"InfiniteSlope", "LEAKY_RELU", kCorrupt, "alpha is not finite",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kLEAKY_RELU, {m.Input({1, 4})}, LeakyReluOptions{kInfinity});
     }},
    {"RankOfZero", "SVDF", kCorrupt, "rank 0", [](ModelBuilder& m) { Blame(m, Svdf(m, 0)); }},
    {"RankThatDoesNotDivide", "SVDF", kCorrupt, "rank 4 does not divide 6",
     [](ModelBuilder& m) { Blame(m, Svdf(m, 4)); }},
    {"NegativeRank", "SVDF", kCorrupt, "rank -2", [](ModelBuilder& m) { Blame(m, Svdf(m, -2)); }},
    {"StateThatIsNoVariable", "SVDF", kCorrupt, "before anything has written it",
     [](ModelBuilder& m) {
       Svdf(m, 2);
       m.tensor(Blame(m, Operand(m, 4))).is_variable = false;
     }},
    {"StateOfAnotherShape", "SVDF", kCorrupt, "input 4 has shape [1, 29], must be [1, 30]",
     [](ModelBuilder& m) {
       Blame(m, Svdf(m, 2));
       m.tensor(Operand(m, 4)).shape = {1, 29};
     }},

    // Axes.
    {"ConcatenationAxis", "CONCATENATION", kCorrupt, "axis 2",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Wrong(m, OpType::kCONCATENATION, {x, x}, AxisOptions{.axis = 2});
     }},
    {"ConcatenationAxisFarBelow", "CONCATENATION", kCorrupt, "axis -2147483648",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Wrong(m, OpType::kCONCATENATION, {x, x}, AxisOptions{.axis = INT32_MIN});
     }},
    {"GatherAxis", "GATHER", kCorrupt, "axis 2",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kGATHER, {m.Input({1, 2}), m.Integers({1}, {0})}, AxisOptions{.axis = 2});
     }},
    {"GatherBatchDimensions", "GATHER", kCorrupt, "batch_dims 3",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kGATHER, {m.Input({1, 2}), m.Integers({1}, {0})},
             AxisOptions{.axis = 1, .count = 3});
     }},
    {"MeanAxis", "MEAN", kCorrupt, "axis -4",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kMEAN, {m.Input({1, 2, 3}), m.Integers({1}, {-4})}, ReducerOptions{});
     }},
    {"SumAxisThatIsComputed", "SUM", kUnknown, "is computed at run time",
     [](ModelBuilder& m) {
       const int32_t axes = TypedInput<int32_t>(m, {1});
       Wrong(m, OpType::kSUM, {m.Input({1, 2, 3}), axes}, ReducerOptions{});
     }},
    {"PackAxis", "PACK", kCorrupt, "new axis 3",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Wrong(m, OpType::kPACK, {x, x}, AxisOptions{.axis = 3, .count = 2});
     }},
    {"PackOfAnotherCount", "PACK", kCorrupt, "values_count is 3 for 2 inputs",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Wrong(m, OpType::kPACK, {x, x}, AxisOptions{.axis = 0, .count = 3});
     }},
    {"PackOfAnAbsentInput", "PACK", kCorrupt, "input 1 is absent",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kPACK, {m.Input({1, 2}), -1}, AxisOptions{.axis = 0, .count = 2});
     }},
    {"UnpackAxis", "UNPACK", kCorrupt, "axis 2",
     [](ModelBuilder& m) {
       WrongSplit(m, OpType::kUNPACK, {m.Input({1, 2})}, AxisOptions{.axis = 2, .count = 2}, 2);
     }},
    {"UnpackOfAnotherCount", "UNPACK", kCorrupt, "num is 3",
     [](ModelBuilder& m) {
       WrongSplit(m, OpType::kUNPACK, {m.Input({1, 2})}, AxisOptions{.axis = 1, .count = 3}, 3);
     }},
    {"SplitAxis", "SPLIT", kCorrupt, "axis 2",
     [](ModelBuilder& m) {
       WrongSplit(m, OpType::kSPLIT, {m.Integers({}, {2}), m.Input({1, 2})}, SplitOptions{2}, 2);
     }},
    {"SplitThatDoesNotDivide", "SPLIT", kCorrupt, "cannot be split into 2 equal parts",
     [](ModelBuilder& m) {
       WrongSplit(m, OpType::kSPLIT, {m.Integers({}, {1}), m.Input({1, 3})}, SplitOptions{2}, 2);
     }},
    {"SplitIntoNone", "SPLIT", kCorrupt, "num_splits is 0",
     [](ModelBuilder& m) {
       WrongSplit(m, OpType::kSPLIT, {m.Integers({}, {1}), m.Input({1, 3})}, SplitOptions{0}, 1);
     }},
    {"SplitIntoOthersThanItsOutputs", "SPLIT", kCorrupt, "num_splits is 4 for 2 outputs",
     [](ModelBuilder& m) {
       WrongSplit(m, OpType::kSPLIT, {m.Integers({}, {1}), m.Input({1, 4})}, SplitOptions{4}, 2);
     }},
    {"SplitSizesThatDoNotAddUp", "SPLIT_V", kCorrupt, "leave 1 elements",
     [](ModelBuilder& m) {
       const int32_t sizes = m.Integers({2}, {1, 2});
       WrongSplit(m, OpType::kSPLIT_V, {m.Input({1, 4}), sizes, m.Integers({}, {1})},
                  SplitOptions{2}, 2);
     }},
    {"SplitSizesThatOverflow", "SPLIT_V", kCorrupt, "size 2147483647 does not fit",
     [](ModelBuilder& m) {
       const int32_t sizes = m.Integers({2}, {INT32_MAX, INT32_MAX});
       WrongSplit(m, OpType::kSPLIT_V, {m.Input({1, 4}), sizes, m.Integers({}, {1})},
                  SplitOptions{2}, 2);
     }},
    {"ArgMaxAxis", "ARG_MAX", kCorrupt, "axis 7",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       Finish(m, SetType<int32_t>(
                     m, Blame(m, m.Node(OpType::kARG_MAX, {x, m.Integers({}, {7})}, {}))));
     }},
    {"ArgMaxOfTwoAxes", "ARG_MAX", kCorrupt, "has 2 elements, must have 1",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({1, 2});
       const int32_t axes = Blame(m, m.Integers({2}, {0, 1}));
       Finish(m, SetType<int32_t>(m, m.Node(OpType::kARG_MAX, {x, axes}, {})));
     }},
    {"ExpandDimsAxis", "EXPAND_DIMS", kCorrupt, "new axis -4",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kEXPAND_DIMS, {m.Input({1, 2}), m.Integers({}, {-4})});
     }},
    {"SqueezeOfADimensionThatIsNotOne", "SQUEEZE", kCorrupt, "cannot drop dimension 1",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kSQUEEZE, {m.Input({1, 2})}, SqueezeOptions{{1}});
     }},
    {"TransposeAxis", "TRANSPOSE", kCorrupt, "axis 2",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kTRANSPOSE, {m.Input({1, 2}), m.Integers({2}, {0, 2})});
     }},
    {"TransposeOfAnAxisTwice", "TRANSPOSE", kCorrupt, "names axis 1 twice",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kTRANSPOSE, {m.Input({1, 2}), m.Integers({2}, {1, -1})});
     }},
    {"SliceBeyondTheEnd", "SLICE", kCorrupt, "begin 1 and size 2",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kSLICE, {m.Input({2}), m.Integers({1}, {1}), m.Integers({1}, {2})});
     }},
    {"SliceThatOverflows", "SLICE", kCorrupt, "size 2147483647",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kSLICE, {m.Input({2}), m.Integers({1}, {1}), m.Integers({1}, {INT32_MAX})});
     }},
    {"SliceStrideOfZero", "STRIDED_SLICE", kCorrupt, "stride 0",
     [](ModelBuilder& m) {
       const int32_t zero = m.Integers({1}, {0});
       Wrong(m, OpType::kSTRIDED_SLICE, {m.Input({2}), zero, m.Integers({1}, {2}), zero},
             StridedSliceOptions{});
     }},
    {"SliceOfTooManyAxes", "STRIDED_SLICE", kCorrupt, "slices of 2 axes",
     [](ModelBuilder& m) {
       const int32_t ones = m.Integers({2}, {1, 1});
       Wrong(m, OpType::kSTRIDED_SLICE, {m.Input({2}), ones, ones, ones}, StridedSliceOptions{});
     }},
    {"MirrorLargerThanTheImage", "MIRROR_PAD", kCorrupt, "padding 2 of dimension 0",
     [](ModelBuilder& m) {
       Wrong(m, OpType::kMIRROR_PAD, {m.Input({2}), m.Integers({1, 2}, {2, 0})},
             MirrorPadOptions{});
     }},

    // Detections and poses.
    {"NoDetections", "TFLite_Detection_PostProcess", kCorrupt, "max_detections is 0",
     [](ModelBuilder& m) { Detection(m, [](auto* o) { (*o)["max_detections"] = 0; }); }},
    {"NegativeDetections", "TFLite_Detection_PostProcess", kCorrupt, "max_detections is -1",
     [](ModelBuilder& m) { Detection(m, [](auto* o) { (*o)["max_detections"] = -1; }); }},
    {"AbsurdlyManyDetections", "TFLite_Detection_PostProcess", kCorrupt,
     "max_detections is 1099511627776",
     [](ModelBuilder& m) { Detection(m, [](auto* o) { (*o)["max_detections"] = 0x1p40; }); }},
    {"AbsurdlyManyClassesPerDetection", "TFLite_Detection_PostProcess", kCorrupt,
     "max_classes_per_detection is 65536",
     [](ModelBuilder& m) {
       Detection(m, [](auto* o) { (*o)["max_classes_per_detection"] = 65536; });
     }},
    {"NegativeDetectionsPerClass", "TFLite_Detection_PostProcess", kCorrupt,
     "detections_per_class is -5",
     [](ModelBuilder& m) { Detection(m, [](auto* o) { (*o)["detections_per_class"] = -5; }); }},
    {"ClassesWithoutScores", "TFLite_Detection_PostProcess", kCorrupt,
     "3 columns of scores for 5 classes",
     [](ModelBuilder& m) { Detection(m, [](auto* o) { (*o)["num_classes"] = 5; }); }},
    {"NoClasses", "TFLite_Detection_PostProcess", kCorrupt, "num_classes is 0",
     [](ModelBuilder& m) { Detection(m, [](auto* o) { (*o)["num_classes"] = 0; }); }},
    {"BoxScaleOfZero", "TFLite_Detection_PostProcess", kCorrupt, "w_scale is 0",
     [](ModelBuilder& m) { Detection(m, [](auto* o) { (*o)["w_scale"] = 0; }); }},
    {"NegativeBoxScale", "TFLite_Detection_PostProcess", kCorrupt, "y_scale is -10",
     [](ModelBuilder& m) { Detection(m, [](auto* o) { (*o)["y_scale"] = -10; }); }},
    {"ScoreThresholdThatIsNoNumber", "TFLite_Detection_PostProcess", kCorrupt,
     "nms_score_threshold is not finite",
     [](ModelBuilder& m) {
       Detection(m, [](auto* o) { (*o)["nms_score_threshold"] = std::nan(""); });
     }},
    {"InfiniteOverlap", "TFLite_Detection_PostProcess", kCorrupt,
     "nms_iou_threshold is not finite",
     [](ModelBuilder& m) {
       Detection(m, [](auto* o) { (*o)["nms_iou_threshold"] = kInfinity; });
     }},
    {"MissingOption", "TFLite_Detection_PostProcess", kCorrupt, "option x_scale is missing",
     [](ModelBuilder& m) { Detection(m, [](auto* o) { o->erase("x_scale"); }); }},
    {"NoOptionsAtAll", "TFLite_Detection_PostProcess", kCorrupt, "the 0 bytes",
     [](ModelBuilder& m) {
       Detection(m, [](auto*) {});
       Last(m).custom_options = {};
     }},
    {"ThreeCoordinates", "TFLite_Detection_PostProcess", kCorrupt, "encodings [1, 6, 3]",
     [](ModelBuilder& m) {
       Detection(m, [](auto*) {});
       m.tensor(0).shape = {1, 6, 3};
     }},
    {"AnchorsOfAnotherNumber", "TFLite_Detection_PostProcess", kCorrupt, "anchors [5, 4]",
     [](ModelBuilder& m) {
       Detection(m, [](auto*) {});
       m.tensor(2).shape = {5, 4};
     }},
    {"BoxesOfIntegers", "TFLite_Detection_PostProcess", kUnknown, "",
     [](ModelBuilder& m) {
       Detection(m, [](auto*) {});
       SetType<int32_t>(m, 0);
     }},
    {"NoPoses", "PosenetDecoderOp", kCorrupt, "max_detections is 0",
     [](ModelBuilder& m) { Posenet(m, 0, 16, 0.5, 20); }},
    {"AbsurdlyManyPoses", "PosenetDecoderOp", kCorrupt, "max_detections is 2147483647",
     [](ModelBuilder& m) { Posenet(m, INT32_MAX, 16, 0.5, 20); }},
    {"PoseStrideOfZero", "PosenetDecoderOp", kCorrupt, "stride is 0",
     [](ModelBuilder& m) { Posenet(m, 5, 0, 0.5, 20); }},
    {"NegativePoseStride", "PosenetDecoderOp", kCorrupt, "stride is -16",
     [](ModelBuilder& m) { Posenet(m, 5, -16, 0.5, 20); }},
    {"PoseThresholdThatIsNoNumber", "PosenetDecoderOp", kCorrupt, "score_threshold is not finite",
     [](ModelBuilder& m) { Posenet(m, 5, 16, std::nan(""), 20); }},
    {"InfiniteRadius", "PosenetDecoderOp", kCorrupt, "nms_radius is not finite",
     [](ModelBuilder& m) { Posenet(m, 5, 16, 0.5, std::numeric_limits<double>::infinity()); }},
    {"MapsOfDifferentSizes", "PosenetDecoderOp", kCorrupt, "input 1 has shape [1, 32, 33, 34]",
     [](ModelBuilder& m) {
       Posenet(m, 5, 16, 0.5, 20);
       m.tensor(1).shape = {1, 32, 33, 34};
     }},
    {"MapsWhoseMasksDoNotFit", "PosenetDecoderOp", kUnknown, "of 40 x 33 cells",
     [](ModelBuilder& m) { Posenet(m, 5, 16, 0.5, 20, {1, 40, 33}, 4); }},

    // Variables.
    {"ReadBeforeAssignment", "READ_VARIABLE", kCorrupt, "before anything has assigned it",
     [](ModelBuilder& m) {
       Finish(m, Blame(m, m.Node(OpType::kREAD_VARIABLE, {Handle(m, "v")}, {1, 2})));
       Assign(m, m.graph().nodes[0].outputs[0], m.Input({1, 2}));
     }},
    {"HandleThatIsNone", "READ_VARIABLE", kUnknown, "is not the output of a VAR_HANDLE",
     [](ModelBuilder& m) {
       const int32_t x = Blame(m, m.Input({1, 2}));
       m.tensor(x).type = DataType::kResource;
       m.tensor(x).quantization = {};
       Finish(m, m.Node(OpType::kREAD_VARIABLE, {x}, {1, 2}));
     }},
    {"HandleOfBytes", "VAR_HANDLE", kCorrupt, "has type int8, must be resource",
     [](ModelBuilder& m) {
       const int32_t handle = Blame(m, Handle(m, "v"));
       m.tensor(handle).type = DataType::kInt8;
       Assign(m, handle, m.Input({1, 2}));
     }},
    {"VariableOfTwoShapes", "READ_VARIABLE", kUnknown, "of shape [1, 3]",
     [](ModelBuilder& m) {
       const int32_t handle = Handle(m, "v");
       Assign(m, handle, m.Input({1, 2}));
       Finish(m, Blame(m, m.Node(OpType::kREAD_VARIABLE, {handle}, {1, 3})));
     }},
    {"VariableOfTwoTypes", "READ_VARIABLE", kUnknown, "is float32",
     [](ModelBuilder& m) {
       const int32_t handle = Handle(m, "v");
       Assign(m, handle, m.Input({1, 2}));
       Finish(m, SetType<float>(m, Blame(m, m.Node(OpType::kREAD_VARIABLE, {handle}, {1, 2}))));
     }},
    {"VariableOfUnknownSize", "READ_VARIABLE", kUnknown, "sizes must be fixed",
     [](ModelBuilder& m) {
       const int32_t handle = Handle(m, "v");
       Finish(m, Blame(m, m.Node(OpType::kREAD_VARIABLE, {handle}, {1, -1})));
     }},
    {"HandleUsedAsANumber", "ADD", kUnknown, "type resource",
     [](ModelBuilder& m) {
       const int32_t handle = Handle(m, "v");
       const int32_t y = Blame(m, m.Add(handle, handle));
       m.tensor(y).type = DataType::kResource;
       m.tensor(y).quantization = {};
       Finish(m, y);
     }},
    {"VariableTensorWithData", "ADD", kCorrupt, "is a variable with constant data",
     [](ModelBuilder& m) {
       const int32_t state = Blame(m, m.Constant(DataType::kInt8, {1, 2}, {1, 2}));
       m.tensor(state).is_variable = true;
       Finish(m, m.Add(m.Input({1, 2}), state));
     }},
    {"CallOfASubgraphThatIsNotThere", "CALL_ONCE", kCorrupt, "subgraph 7, but there are 1",
     [](ModelBuilder& m) {
       m.Node(OpType::kCALL_ONCE, {}, {}, CallOnceOptions{7});
       Last(m).outputs.clear();
       Finish(m, m.Relu(m.Input({1, 2})));
     }},
    {"CallOfItself", "CALL_ONCE", kCorrupt, "subgraph 0 has 1 inputs",
     [](ModelBuilder& m) {
       m.Node(OpType::kCALL_ONCE, {}, {}, CallOnceOptions{0});
       Last(m).outputs.clear();
       Finish(m, m.Relu(m.Input({1, 2})));
     }},

    // Data, when the model runs. All inputs hold 0x81 bytes: negative and far away.
    {"GatherIndex", "GATHER", kBadData, "index -2122219135 at position 0 is outside [0, 2)",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({2, 3});
       const int32_t indices = Blame(m, TypedInput<int32_t>(m, {1}));
       Finish(m, m.Node(OpType::kGATHER, {x, indices}, {}, AxisOptions{}));
     }},
    {"GatherIndexOf64Bits", "GATHER", kBadData, "at position 0 is outside [0, 2)",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({2, 3});
       const int32_t indices = Blame(m, TypedInput<int64_t>(m, {1}));
       Finish(m, m.Node(OpType::kGATHER, {x, indices}, {}, AxisOptions{}));
     }},
    {"GatherIndexThatIsConstant", "GATHER", kCorrupt, "index 2 at position 1",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({2, 3});
       const int32_t indices = Blame(m, m.Integers({2}, {0, 2}));
       Finish(m, m.Node(OpType::kGATHER, {x, indices}, {}, AxisOptions{}));
     }},
    {"GatherNdIndex", "GATHER_ND", kBadData, "at position 0 is outside [0, 2)",
     [](ModelBuilder& m) {
       const int32_t x = m.Input({2, 3});
       const int32_t indices = Blame(m, TypedInput<int32_t>(m, {1, 2}));
       Finish(m, m.Node(OpType::kGATHER_ND, {x, indices}, {}));
     }},
    {"GatherNdWidth", "GATHER_ND", kCorrupt, "indices of shape [1, 3]",
     [](ModelBuilder& m) {
       const int32_t indices = m.Integers({1, 3}, {0, 0, 0});
       Wrong(m, OpType::kGATHER_ND, {m.Input({2, 3}), indices});
     }},
    {"DivisionByZero", "DIV", kBadData, "element 0 of the divisor is zero",
     [](ModelBuilder& m) {
       const int32_t x = TypedInput<int32_t>(m, {1});
       const int32_t zero = m.Integers({1}, {0});
       Finish(m, SetType<int32_t>(m, Blame(m, m.Node(OpType::kDIV, {x, zero}, {},
                                                     ElementwiseOptions{}))));
     }},
    {"RootOfANegativeNumber", "RSQRT", kBadData, "element 0 is negative",
     [](ModelBuilder& m) { Wrong(m, OpType::kRSQRT, {m.Input({1, 2})}); }},
    {"BoxThatEndsBeforeItBegins", "TFLite_Detection_PostProcess", kBadData,
     "ends before it begins",
     [](ModelBuilder& m) {
       Detection(m, [](auto* o) { (*o)["nms_score_threshold"] = -0.5; });
     }},
};

// ---- Refusals -----------------------------------------------------------------------------------

Delegate* EmulatorDelegate() {
  static DeviceDelegate* const delegate = [] {
    auto device = OpenDevice({.device = "emu", .threads = 1});
    EXPECT_TRUE(device.ok()) << device.status().message();
    return new DeviceDelegate(*std::move(device));
  }();
  return delegate;
}

// Of loading, preparing and running, what fails first.
Status FirstFailure(const Bytes& file, Delegate* delegate) {
  auto model = Model::FromBuffer(file);
  if (!model.ok()) return model.status();
  auto interpreter = Interpreter::Create(*std::move(model), {.threads = 1, .delegate = delegate});
  if (!interpreter.ok()) return interpreter.status();
  for (const int32_t input : (*interpreter)->graph().inputs) {
    const std::span<uint8_t> bytes = (*interpreter)->TensorBytes(input);
    std::fill(bytes.begin(), bytes.end(), uint8_t{0x81});
  }
  return (*interpreter)->Invoke();
}

class BadModels : public testing::TestWithParam<BadModel> {};

TEST_P(BadModels, AreRefusedByNameAndNumber) {
  ModelBuilder m;
  GetParam().build(m);
  const Bytes file = m.Build();
  for (Delegate* delegate : {static_cast<Delegate*>(nullptr), EmulatorDelegate()}) {
    const Status status = FirstFailure(file, delegate);
    EXPECT_EQ(status.code(), GetParam().code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(GetParam().op));
    EXPECT_THAT(status.message(), HasSubstr(GetParam().says));
    // A call has no tensors.
    if (std::string(GetParam().op) == "CALL_ONCE") continue;
    EXPECT_THAT(status.message(), HasSubstr("'culprit'"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadModels, testing::ValuesIn(kBadModels),
                         [](const auto& one) { return std::string(one.param.name); });

// ---- Extreme numbers ----------------------------------------------------------------------------

// Replaces one number after the other in a model, and puts it back.
class Replacer {
 public:
  Replacer(Bytes* file, Delegate* delegate) : file_(*file), delegate_(delegate) {}

  template <typename T>
  void Try(const void* place, std::initializer_list<T> values) {
    const size_t offset = static_cast<size_t>(static_cast<const uint8_t*>(place) - file_.data());
    const Bytes good = file_;
    for (const T value : values) {
      SCOPED_TRACE("byte " + std::to_string(offset) + ": " + std::to_string(value));
      std::memcpy(&file_[offset], &value, sizeof(T));
      ExpectHarmless(file_, delegate_);
    }
    // In place: pointers into the model stay valid.
    std::copy(good.begin(), good.end(), file_.begin());
  }

 private:
  Bytes& file_;
  Delegate* const delegate_;
};

// The first few of a list: all are treated alike.
template <typename T, typename Function>
void ForFirst(const flatbuffers::Vector<T>* values, Function function) {
  for (uint32_t i = 0; values != nullptr && i < std::min(values->size(), 8u); ++i) {
    function(values->Data() + i * sizeof(T));
  }
}

void ReplaceNumbers(Bytes file, Delegate* delegate) {
  const tflite::Model& model = *tflite::GetModel(file.data());
  Replacer replacer(&file, delegate);
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
  constexpr float kMax = std::numeric_limits<float>::max();
  const tflite::SubGraph& graph = *model.subgraphs()->Get(0);
  for (const tflite::Tensor* tensor : *graph.tensors()) {
    ForFirst(tensor->shape(), [&](const void* dim) {
      replacer.Try<int32_t>(dim, {INT32_MIN, -1, 0, 1, 3, 1000, 65536, INT32_MAX});
    });
    if (const auto* q = tensor->quantization(); q != nullptr) {
      ForFirst(q->scale(), [&](const void* scale) {
        replacer.Try<float>(scale, {0, -0.0f, -1, kDenormal, 1e-30f, 1e30f, kMax, kNan, kInfinity});
      });
      ForFirst(q->zero_point(), [&](const void* zero_point) {
        replacer.Try<int64_t>(zero_point, {INT64_MIN, -129, -128, 0, 127, 128, 255, INT64_MAX});
      });
    }
    // Sizes, axes, paddings, biases.
    const tflite::Buffer& buffer = *model.buffers()->Get(tensor->buffer());
    if (static_cast<DataType>(tensor->type()) != DataType::kInt32 || buffer.data() == nullptr) {
      continue;
    }
    for (uint32_t i = 0; i + 4 <= std::min(buffer.data()->size(), 32u); i += 4) {
      replacer.Try<int32_t>(buffer.data()->data() + i,
                            {INT32_MIN, -2, -1, 0, 1, 7, 65536, INT32_MAX});
    }
  }
}

bool RunsOnDevice(const Bytes& file) {
  const auto interpreter =
      Interpreter::Create(*Model::FromBuffer(file), {.threads = 1, .delegate = EmulatorDelegate()});
  return interpreter.ok() && !(*interpreter)->partitions().empty();
}

// Two models of each operator.
TEST(ExtremeNumbers, AreRefusedOrHarmless) {
  int models = 0;
  for (const auto& folder :
       std::filesystem::directory_iterator(ATOLL_SOURCE_DIR "/tests/golden/ops")) {
    if (!folder.is_directory() || folder.path().filename() == "error") continue;
    std::vector<std::filesystem::path> files;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() == ".tflite") files.push_back(file.path());
    }
    std::sort(files.begin(), files.end());
    files.resize(std::min<size_t>(files.size(), 2));
    for (const std::filesystem::path& file : files) {
      SCOPED_TRACE(file.filename().string());
      const Bytes bytes = ReadFile(file);
      ReplaceNumbers(bytes, nullptr);
      if (RunsOnDevice(bytes)) ReplaceNumbers(bytes, EmulatorDelegate());
      ++models;
    }
  }
  EXPECT_GE(models, 100);
}

}  // namespace
}  // namespace atollrt
