// SPDX-License-Identifier: Apache-2.0
#include "tests/support/model_builder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/shapes/shape_inference.h"
#include "runtime/tflite/tflite_writer.h"

namespace atollrt {
namespace {

NumberFormat Activations() {
  return {DataType::kInt8, {.scales = {1.0f / 16}, .zero_points = {-3}}};
}

}  // namespace

std::vector<uint8_t> WriteGraphs(const std::vector<const Graph*>& graphs,
                                 const ModelExtras& extras) {
  Result<std::vector<uint8_t>> file = WriteTflite(graphs, extras);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? *std::move(file) : std::vector<uint8_t>();
}

int32_t ModelBuilder::Activation(Shape shape) {
  return model_.AddTensor(Activations(), std::move(shape));
}

int32_t ModelBuilder::Input(Shape shape) {
  return model_.AddInput(Activations(), std::move(shape));
}

int32_t ModelBuilder::Constant(Shape shape) {
  const int64_t count = ElementCount(shape);
  return model_.AddConstant(Activations(), std::move(shape), RandomBytes(count));
}

std::vector<uint8_t> ModelBuilder::RandomBytes(int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  rng_.Fill(bytes);
  return bytes;
}

int32_t ModelBuilder::Weights(Shape shape, int32_t dimension) {
  const int64_t count = ElementCount(shape);
  const size_t channels = static_cast<size_t>(shape[static_cast<size_t>(dimension)]);
  const int32_t index = Constant(DataType::kInt8, std::move(shape), RandomBytes(count));
  Quantization& q = tensor(index).quantization;
  q.dimension = dimension;
  for (size_t c = 0; c < channels; ++c) {
    q.scales.push_back(0.002f + 0.004f * static_cast<float>(rng_.Real()));
    q.zero_points.push_back(0);
  }
  return index;
}

int32_t ModelBuilder::Bias(int32_t channels) {
  std::vector<int32_t> values;
  for (int32_t c = 0; c < channels; ++c) values.push_back(rng_.Int32(-2000, 2000));
  return Integers({channels}, values);
}

Shape ModelBuilder::WindowShape(const Shape& input, int32_t size, int32_t stride, Padding padding,
                                int32_t channels) const {
  return {input[0], ResolveWindow({input[1], size, stride, 1}, padding).output,
          ResolveWindow({input[2], size, stride, 1}, padding).output, channels};
}

int32_t ModelBuilder::Node(OpType type, std::vector<int32_t> inputs, Shape output_shape,
                           OpOptions options) {
  const int32_t output = Activation(std::move(output_shape));
  model_.AddNode(type, std::move(inputs), {output}, std::move(options));
  return output;
}

int32_t ModelBuilder::Conv2D(int32_t input, const Filter& filter) {
  const Shape shape = tensor(input).shape;
  const int32_t weights = Weights({filter.channels, filter.kernel, filter.kernel, shape[3]}, 0);
  const int32_t bias = Bias(filter.channels);
  return Node(OpType::kCONV_2D, {input, weights, bias},
              WindowShape(shape, filter.kernel, filter.stride, filter.padding, filter.channels),
              Conv2DOptions{
                  .padding = filter.padding, .stride_h = filter.stride, .stride_w = filter.stride});
}

int32_t ModelBuilder::DepthwiseConv2D(int32_t input, const Filter& filter) {
  const Shape shape = tensor(input).shape;
  const int32_t weights = Weights({1, filter.kernel, filter.kernel, shape[3]}, 3);
  const int32_t bias = Bias(shape[3]);
  return Node(OpType::kDEPTHWISE_CONV_2D, {input, weights, bias},
              WindowShape(shape, filter.kernel, filter.stride, filter.padding, shape[3]),
              Conv2DOptions{
                  .padding = filter.padding, .stride_h = filter.stride, .stride_w = filter.stride});
}

int32_t ModelBuilder::TransposeConv(int32_t input, const Filter& filter, int32_t height,
                                    int32_t width) {
  const Shape shape = tensor(input).shape;
  const Shape output = {shape[0], height, width, filter.channels};
  const int32_t sizes = Integers({4}, output);
  const int32_t weights = Weights({filter.channels, filter.kernel, filter.kernel, shape[3]}, 0);
  const int32_t bias = Bias(filter.channels);
  return Node(OpType::kTRANSPOSE_CONV, {sizes, weights, input, bias}, output,
              Conv2DOptions{
                  .padding = filter.padding, .stride_h = filter.stride, .stride_w = filter.stride});
}

int32_t ModelBuilder::FullyConnected(int32_t input, int32_t units) {
  const Shape shape = tensor(input).shape;
  const int32_t depth = static_cast<int32_t>(ElementCount(shape) / shape[0]);
  const int32_t weights = Weights({units, depth}, 0);
  const int32_t bias = Bias(units);
  return Node(OpType::kFULLY_CONNECTED, {input, weights, bias}, {shape[0], units},
              FullyConnectedOptions{});
}

int32_t ModelBuilder::Lstm(int32_t input, const Recurrent& layer) {
  const Shape shape = tensor(input).shape;
  const int32_t units = layer.units;
  std::vector<int32_t> inputs(20, -1);
  inputs[0] = input;
  const auto weights = [&](Shape size) {
    const int64_t count = ElementCount(size);
    const int32_t index = Constant(DataType::kInt8, std::move(size), RandomBytes(count));
    const float scale = 0.002f + 0.006f * static_cast<float>(rng_.Real());
    tensor(index).quantization = {.scales = {scale}, .zero_points = {0}};
    return index;
  };
  for (size_t gate = 0; gate < 4; ++gate) {
    inputs[1 + gate] = weights({units, shape[2]});
    inputs[5 + gate] = weights({units, units});
    inputs[12 + gate] = Bias(units);
  }
  const Quantization hidden = {.scales = {1.0f / 128}, .zero_points = {-3}};
  const auto state = [&](DataType type, Quantization quantization) {
    const int32_t index =
        model_.AddTensor({type, std::move(quantization)}, {shape[layer.time_major ? 1 : 0], units});
    tensor(index).is_variable = true;
    return index;
  };
  inputs[18] = state(DataType::kInt8, hidden);
  inputs[19] = state(DataType::kInt16, {.scales = {std::ldexp(1.0f, layer.cell_integer_bits - 15)},
                                        .zero_points = {0}});
  std::vector<int32_t> intermediates;
  for (int i = 0; i < 5; ++i) {
    intermediates.push_back(model_.AddTensor({DataType::kInt8, hidden}, {0}));
  }
  const int32_t output =
      Node(OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM, std::move(inputs), {shape[0], shape[1], units},
           LstmOptions{.activation = Activation::kTanh,
                       .cell_clip = layer.cell_clip,
                       .time_major = layer.time_major});
  graph().nodes.back().intermediates = std::move(intermediates);
  tensor(output).quantization = hidden;
  return output;
}

int32_t ModelBuilder::Add(int32_t a, int32_t b) {
  Shape shape;
  BroadcastShapes(tensor(a).shape, tensor(b).shape, &shape);
  return Node(OpType::kADD, {a, b}, std::move(shape), ElementwiseOptions{});
}

int32_t ModelBuilder::Pool(OpType type, int32_t input, const Window& window) {
  const Shape& shape = tensor(input).shape;
  return Node(type, {input},
              WindowShape(shape, window.size, window.stride, window.padding, shape[3]),
              Pool2DOptions{.padding = window.padding,
                            .stride_h = window.stride,
                            .stride_w = window.stride,
                            .filter_h = window.size,
                            .filter_w = window.size});
}

int32_t ModelBuilder::MaxPool(int32_t input, const Window& window) {
  return Pool(OpType::kMAX_POOL_2D, input, window);
}

int32_t ModelBuilder::AveragePool(int32_t input, const Window& window) {
  return Pool(OpType::kAVERAGE_POOL_2D, input, window);
}

int32_t ModelBuilder::Mean(int32_t input, const std::vector<int32_t>& axes) {
  const int32_t list = Integers({static_cast<int32_t>(axes.size())}, axes);
  Shape shape = tensor(input).shape;
  for (const int32_t axis : axes) shape[static_cast<size_t>(axis)] = 1;
  return Node(OpType::kMEAN, {input, list}, std::move(shape), ReducerOptions{.keep_dims = true});
}

int32_t ModelBuilder::Pad(int32_t input, const std::vector<int32_t>& paddings) {
  Shape shape = tensor(input).shape;
  const int32_t list = Integers({static_cast<int32_t>(shape.size()), 2}, paddings);
  for (size_t i = 0; i < shape.size(); ++i) shape[i] += paddings[2 * i] + paddings[2 * i + 1];
  return Node(OpType::kPAD, {input, list}, std::move(shape));
}

int32_t ModelBuilder::Concatenation(const std::vector<int32_t>& inputs, int32_t axis) {
  return Node(OpType::kCONCATENATION, inputs, model_.ConcatenatedShape(inputs, axis),
              AxisOptions{.axis = axis});
}

int32_t ModelBuilder::Reshape(int32_t input, Shape shape) {
  return Node(OpType::kRESHAPE, {input}, shape, ReshapeOptions{.new_shape = shape});
}

int32_t ModelBuilder::Relu(int32_t input) {
  return Node(OpType::kRELU, {input}, tensor(input).shape);
}

int32_t ModelBuilder::L2Normalization(int32_t input) {
  const int32_t output =
      Node(OpType::kL2_NORMALIZATION, {input}, tensor(input).shape, ElementwiseOptions{});
  tensor(output).quantization = {.scales = {1.0f / 128}, .zero_points = {0}};
  return output;
}

int32_t ModelBuilder::Logistic(int32_t input) {
  const int32_t output = Node(OpType::kLOGISTIC, {input}, tensor(input).shape);
  tensor(output).quantization = {.scales = {1.0f / 256}, .zero_points = {-128}};
  return output;
}

int32_t ModelBuilder::LogSoftmax(int32_t input) {
  const int32_t output = Node(OpType::kLOG_SOFTMAX, {input}, tensor(input).shape);
  tensor(output).quantization = {.scales = {1.0f / 16}, .zero_points = {127}};
  return output;
}

int32_t ModelBuilder::Softmax(int32_t input) {
  const int32_t output = Node(OpType::kSOFTMAX, {input}, tensor(input).shape, SoftmaxOptions{});
  tensor(output).quantization = {.scales = {1.0f / 256}, .zero_points = {-128}};
  return output;
}

int32_t ModelBuilder::Custom(const std::string& name, int32_t input) {
  const int32_t output = Node(OpType::kCUSTOM, {input}, tensor(input).shape);
  graph().nodes.back().custom_name = name;
  return output;
}

std::vector<uint8_t> ModelBuilder::Build(const ModelExtras& extras) const {
  return WriteGraphs({&graph()}, extras);
}

std::shared_ptr<const Model> ModelBuilder::Load() const {
  auto model = Model::FromBuffer(Build());
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *std::move(model) : nullptr;
}

}  // namespace atollrt
