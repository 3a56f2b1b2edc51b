// SPDX-License-Identifier: Apache-2.0
#include "models/zoo/network_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/graph/shape_inference.h"

namespace atollrt {
namespace {

constexpr double kDeviations = 6;  // from the middle of a range to its end
// Biases put the middle of a channel at most this many deviations from zero.
constexpr double kMaxOffset = 0.5;

// The version of each operator that first takes int8, as converters write it.
int32_t VersionOf(OpType type) {
  switch (type) {
    case OpType::kCONV_2D:
    case OpType::kDEPTHWISE_CONV_2D:
    case OpType::kTRANSPOSE_CONV:
      return 3;
    case OpType::kFULLY_CONNECTED:
      return 4;
    case OpType::kCUSTOM:
    case OpType::kQUANTIZE:
    case OpType::kRESHAPE:
      return 1;
    default:
      return 2;
  }
}

double Density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double Distribution(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

}  // namespace

NetworkBuilder::NetworkBuilder(std::string name, uint64_t seed) : state_(seed) {
  model_.graph.name = std::move(name);
}

// splitmix64 (Steele, Lea, Flood 2014).
uint64_t NetworkBuilder::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double NetworkBuilder::Real() { return static_cast<double>(Next() >> 11) * 0x1p-52 - 1; }

std::vector<uint8_t> NetworkBuilder::RandomWeights(size_t count) {
  std::vector<uint8_t> weights(count);
  uint64_t bits = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i % 8 == 0) bits = Next();
    weights[i] = static_cast<uint8_t>(static_cast<int32_t>(((bits & 0xff) * 255) >> 8) - 127);
    bits >>= 8;
  }
  return weights;
}

// ---- Tensors
// --------------------------------------------------------------------------------------

std::string NetworkBuilder::LayerName(const char* kind) {
  return std::string(kind) + "_" + std::to_string(model_.graph.nodes.size());
}

int32_t NetworkBuilder::AddTensor(std::string name, DataType type, Shape shape) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.type = type;
  tensor.shape = std::move(shape);
  moments_.emplace_back(tensor.shape.empty() ? 1 : static_cast<size_t>(tensor.shape.back()));
  model_.graph.tensors.push_back(std::move(tensor));
  return static_cast<int32_t>(model_.graph.tensors.size()) - 1;
}

int32_t NetworkBuilder::AddConstant(const std::string& name, DataType type, Shape shape,
                                    std::vector<uint8_t> bytes) {
  const int32_t tensor = AddTensor(name, type, std::move(shape));
  model_.constants.push_back(std::move(bytes));
  at(tensor).data = model_.constants.back();
  return tensor;
}

int32_t NetworkBuilder::Integers(const std::string& name, const std::vector<int32_t>& values) {
  std::vector<uint8_t> bytes(4 * values.size());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return AddConstant(name, DataType::kInt32, {static_cast<int32_t>(values.size())},
                     std::move(bytes));
}

int32_t NetworkBuilder::Floats(Shape shape, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(4 * values.size());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return AddConstant(LayerName("constant"), DataType::kFloat32, std::move(shape), std::move(bytes));
}

int32_t NetworkBuilder::QuantizedVector(const std::string& name,
                                        const std::vector<double>& values) {
  double largest = 1e-6;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  const double scale = largest / 127;
  std::vector<uint8_t> bytes;
  for (const double value : values) {
    bytes.push_back(static_cast<uint8_t>(std::lround(value / scale)));
  }
  const int32_t tensor =
      AddConstant(name, DataType::kInt8, {static_cast<int32_t>(values.size())}, std::move(bytes));
  at(tensor).quantization = {.scales = {static_cast<float>(scale)}, .zero_points = {0}};
  return tensor;
}

int32_t NetworkBuilder::Input(int32_t h, int32_t w) {
  const int32_t tensor = AddTensor("input", DataType::kInt8, {1, h, w, 3});
  at(tensor).quantization = {.scales = {1.0f / 127.5f}, .zero_points = {-1}};
  moments_.back().assign(3, {.mean = 0, .variance = 1.0 / 3});  // every brightness equally often
  model_.graph.inputs.push_back(tensor);
  return tensor;
}

// ---- Layers
// ---------------------------------------------------------------------------------------

int32_t NetworkBuilder::AddMover(OpType type, std::vector<int32_t> inputs, Shape shape,
                                 OpOptions options, Channels channels) {
  const int32_t output = AddTensor(LayerName("out"), DataType::kInt8, std::move(shape));
  at(output).quantization = at(inputs[0]).quantization;
  moments_.back() = std::move(channels);
  Node node;
  node.type = type;
  node.version = VersionOf(type);
  node.inputs = std::move(inputs);
  node.outputs = {output};
  node.options = std::move(options);
  model_.graph.nodes.push_back(std::move(node));
  return output;
}

int32_t NetworkBuilder::AddLayer(OpType type, std::vector<int32_t> inputs, Shape shape,
                                 OpOptions options, Range range, Channels channels) {
  const int32_t output =
      AddMover(type, std::move(inputs), std::move(shape), std::move(options), std::move(channels));
  const double scale = (range.high - range.low) / 255;
  at(output).quantization = {.scales = {static_cast<float>(scale)},
                             .zero_points = {-128 - std::lround(range.low / scale)}};
  return output;
}

Shape NetworkBuilder::WindowShape(int32_t input, const Window& window, int32_t channels) {
  const Shape& in = shape(input);
  const int32_t h =
      ResolveWindow({in[1], window.h, window.stride, window.dilation}, window.padding).output;
  const int32_t w =
      ResolveWindow({in[2], window.w, window.stride, window.dilation}, window.padding).output;
  if ((h < 1 || w < 1) && status_.ok()) {
    status_ = InvalidArgument(
        "%s: layer %zu has a window of %d x %d on an input of %d x %d; use a larger picture",
        model_.graph.name.c_str(), model_.graph.nodes.size(), window.h, window.w, in[1], in[2]);
  }
  return {1, std::max(h, 1), std::max(w, 1), channels};
}

std::pair<int32_t, int32_t> NetworkBuilder::AddFilter(int32_t input, Shape shape,
                                                      const Filter& filter, double gain,
                                                      Channels* channels) {
  const Channels in = moments(input);
  const double input_scale = static_cast<double>(at(input).scale());
  const size_t outputs = static_cast<size_t>(filter.outputs);
  const size_t taps = static_cast<size_t>(filter.taps);
  std::vector<uint8_t> bytes = RandomWeights(outputs * taps);
  Quantization quantization;
  quantization.dimension = filter.depthwise ? 3 : 0;
  std::vector<uint8_t> biases(4 * outputs);
  channels->resize(outputs);
  for (size_t o = 0; o < outputs; ++o) {
    double mean = 0, variance = 0;
    for (size_t k = 0; k < taps; ++k) {
      const size_t index = filter.depthwise ? k * outputs + o : o * taps + k;
      const Moments& m = in[filter.depthwise ? o : k % in.size()];
      const double q = static_cast<int8_t>(bytes[index]);
      mean += q * m.mean;
      variance += q * q * m.variance;
    }
    mean *= filter.share;
    variance *= filter.share;
    const double scale = gain / std::sqrt(std::max(variance, 1e-9));
    const double offset = gain * kMaxOffset * Real();
    const double bias = std::clamp((offset - scale * mean) / (input_scale * scale), -1e9, 1e9);
    const int32_t stored = static_cast<int32_t>(std::lround(bias));
    std::memcpy(&biases[4 * o], &stored, 4);
    quantization.scales.push_back(static_cast<float>(scale));
    quantization.zero_points.push_back(0);
    (*channels)[o] = {.mean = offset, .variance = gain * gain};
  }
  const int32_t weights =
      AddConstant(LayerName("weights"), DataType::kInt8, std::move(shape), std::move(bytes));
  at(weights).quantization = quantization;
  const int32_t bias =
      AddConstant(LayerName("bias"), DataType::kInt32, {filter.outputs}, std::move(biases));
  for (float& scale : quantization.scales) scale *= static_cast<float>(input_scale);
  quantization.dimension = 0;
  at(bias).quantization = std::move(quantization);
  return {weights, bias};
}

NetworkBuilder::Range NetworkBuilder::Activate(Activation activation, double deviation,
                                               Channels* channels) {
  const double reach = kDeviations * deviation;
  if (activation == Activation::kNone) return {-reach, reach};
  for (Moments& m : *channels) {
    // Mean and second moment of max(0, x) for a normal x.
    const double sigma = std::sqrt(m.variance);
    const double positive = Distribution(m.mean / sigma);
    const double density = sigma * Density(m.mean / sigma);
    const double mean = m.mean * positive + density;
    const double square = (m.mean * m.mean + m.variance) * positive + m.mean * density;
    m = {.mean = mean, .variance = std::max(square - mean * mean, 1e-6)};
  }
  return {0, activation == Activation::kRelu6 ? std::min(reach, 6.0) : reach};
}

int32_t NetworkBuilder::Conv(int32_t input, int32_t outputs, const Window& window) {
  Channels result;
  const int32_t inputs = channels(input);
  const auto [weights, bias] =
      AddFilter(input, {outputs, window.h, window.w, inputs},
                {.outputs = outputs, .taps = window.h * window.w * inputs}, window.gain, &result);
  const Range range = Activate(window.activation, window.gain, &result);
  return AddLayer(OpType::kCONV_2D, {input, weights, bias}, WindowShape(input, window, outputs),
                  Conv2DOptions{.padding = window.padding,
                                .stride_h = window.stride,
                                .stride_w = window.stride,
                                .dilation_h = window.dilation,
                                .dilation_w = window.dilation,
                                .activation = window.activation},
                  range, std::move(result));
}

int32_t NetworkBuilder::Depthwise(int32_t input, const Window& window) {
  Channels result;
  const int32_t count = channels(input);
  const auto [weights, bias] = AddFilter(
      input, {1, window.h, window.w, count},
      {.outputs = count, .taps = window.h * window.w, .depthwise = true}, window.gain, &result);
  const Range range = Activate(window.activation, window.gain, &result);
  return AddLayer(OpType::kDEPTHWISE_CONV_2D, {input, weights, bias},
                  WindowShape(input, window, count),
                  Conv2DOptions{.padding = window.padding,
                                .stride_h = window.stride,
                                .stride_w = window.stride,
                                .dilation_h = window.dilation,
                                .dilation_w = window.dilation,
                                .activation = window.activation},
                  range, std::move(result));
}

int32_t NetworkBuilder::UpConv(int32_t input, int32_t outputs, Activation activation) {
  constexpr int32_t kStride = 2, kSize = 3;
  Channels result;
  const int32_t inputs = channels(input);
  // A quarter of the taps meets any one output, on average.
  const auto [weights, bias] = AddFilter(
      input, {outputs, kSize, kSize, inputs},
      {.outputs = outputs, .taps = kSize * kSize * inputs, .share = 1.0 / (kStride * kStride)}, 1,
      &result);
  const Range range = Activate(activation, 1, &result);
  const Shape out = {1, kStride * shape(input)[1], kStride * shape(input)[2], outputs};
  const int32_t size = Integers(LayerName("shape"), out);
  return AddLayer(OpType::kTRANSPOSE_CONV, {size, weights, input, bias}, out,
                  Conv2DOptions{.stride_h = kStride, .stride_w = kStride, .activation = activation},
                  range, std::move(result));
}

int32_t NetworkBuilder::FullyConnected(int32_t input, int32_t units, Activation activation,
                                       double gain) {
  Channels result;
  const int32_t depth = static_cast<int32_t>(at(input).element_count());
  const auto [weights, bias] =
      AddFilter(input, {units, depth}, {.outputs = units, .taps = depth}, gain, &result);
  const Range range = Activate(activation, gain, &result);
  return AddLayer(OpType::kFULLY_CONNECTED, {input, weights, bias}, {1, units},
                  FullyConnectedOptions{.activation = activation}, range, std::move(result));
}

int32_t NetworkBuilder::NormalizeRelu(int32_t input) {
  Channels scaled = moments(input), result;
  std::vector<double> factors, offsets;
  double reach = 0;
  for (Moments& m : scaled) {
    factors.push_back(1 / std::sqrt(m.variance));
    m = {.mean = m.mean * factors.back(), .variance = 1};
    const double offset = kMaxOffset * Real();
    offsets.push_back(offset - m.mean);
    reach = std::max(reach, std::abs(m.mean) + kDeviations);
    result.push_back({.mean = offset, .variance = 1});
  }
  const Shape out = shape(input);
  const int32_t factor = QuantizedVector(LayerName("factor"), factors);
  const int32_t product = AddLayer(OpType::kMUL, {input, factor}, out, ElementwiseOptions{},
                                   {-reach, reach}, std::move(scaled));
  const int32_t offset = QuantizedVector(LayerName("offset"), offsets);
  const Range range = Activate(Activation::kRelu, 1, &result);
  return AddLayer(OpType::kADD, {product, offset}, out,
                  ElementwiseOptions{.activation = Activation::kRelu}, range, std::move(result));
}

int32_t NetworkBuilder::Add(int32_t a, int32_t b, Activation activation) {
  Channels sum = moments(a);
  double reach = 0;
  for (size_t c = 0; c < sum.size(); ++c) {
    const Moments& other = moments(b)[c];
    sum[c].mean += other.mean;
    sum[c].variance += other.variance;
    reach = std::max(reach, std::abs(sum[c].mean) + kDeviations * std::sqrt(sum[c].variance));
  }
  const Range range = Activate(activation, reach / kDeviations, &sum);
  return AddLayer(OpType::kADD, {a, b}, shape(a), ElementwiseOptions{.activation = activation},
                  range, std::move(sum));
}

int32_t NetworkBuilder::Concat(std::vector<int32_t> inputs) {
  Shape out = shape(inputs[0]);
  out.back() = 0;
  Channels result;
  for (int32_t& input : inputs) {
    if (at(input).scale() != at(inputs[0]).scale() ||
        at(input).zero_point() != at(inputs[0]).zero_point()) {
      const Channels same = moments(input);
      input = AddMover(OpType::kQUANTIZE, {input}, shape(input), {}, same);
      at(input).quantization = at(inputs[0]).quantization;
    }
    out.back() += channels(input);
    result.insert(result.end(), moments(input).begin(), moments(input).end());
  }
  const int32_t axis = static_cast<int32_t>(out.size()) - 1;
  return AddMover(OpType::kCONCATENATION, std::move(inputs), std::move(out),
                  AxisOptions{.axis = axis}, std::move(result));
}

int32_t NetworkBuilder::ConcatAlong(std::vector<int32_t> inputs, int32_t axis) {
  const size_t dimension = static_cast<size_t>(axis);
  Shape out = shape(inputs[0]);
  out[dimension] = 0;
  for (const int32_t input : inputs) out[dimension] += shape(input)[dimension];
  Channels same = moments(inputs[0]);
  return AddMover(OpType::kCONCATENATION, std::move(inputs), std::move(out),
                  AxisOptions{.axis = axis}, std::move(same));
}

int32_t NetworkBuilder::Pool(OpType type, int32_t input, const Window& window, Channels channels) {
  const Shape out = WindowShape(input, window, shape(input)[3]);
  return AddMover(type, {input}, out,
                  Pool2DOptions{.padding = window.padding,
                                .stride_h = window.stride,
                                .stride_w = window.stride,
                                .filter_h = window.h,
                                .filter_w = window.w},
                  std::move(channels));
}

int32_t NetworkBuilder::MaxPool(int32_t input, const Window& window) {
  // Neighbours are alike: n x n of them count as n independent normal values, of which the largest
  // has these moments for n = 2 and 3.
  const Moments largest =
      window.w <= 2 ? Moments{.mean = 0.564, .variance = 0.682} : Moments{0.846, 0.559};
  Channels result = moments(input);
  for (Moments& m : result) {
    m = {.mean = m.mean + largest.mean * std::sqrt(m.variance),
         .variance = m.variance * largest.variance};
  }
  return Pool(OpType::kMAX_POOL_2D, input, window, std::move(result));
}

int32_t NetworkBuilder::AveragePool(int32_t input, const Window& window) {
  Channels result = moments(input);  // n x n values count as n, as above
  for (Moments& m : result) m.variance /= std::sqrt(window.h * window.w);
  return Pool(OpType::kAVERAGE_POOL_2D, input, window, std::move(result));
}

int32_t NetworkBuilder::GlobalAveragePool(int32_t input) {
  return AveragePool(input,
                     {.h = shape(input)[1], .w = shape(input)[2], .padding = Padding::kValid});
}

int32_t NetworkBuilder::Reshape(int32_t input, Shape out) {
  Channels same = moments(input);
  const int32_t size = Integers(LayerName("shape"), out);
  return AddMover(OpType::kRESHAPE, {input, size}, out, ReshapeOptions{.new_shape = out},
                  std::move(same));
}

int32_t NetworkBuilder::ResizeBilinear(int32_t input, int32_t h, int32_t w) {
  Channels same = moments(input);
  const int32_t size = Integers(LayerName("size"), {h, w});
  return AddMover(OpType::kRESIZE_BILINEAR, {input, size}, {1, h, w, channels(input)},
                  ResizeOptions{.align_corners = true}, std::move(same));
}

int32_t NetworkBuilder::Logistic(int32_t input) {
  const int32_t output = AddMover(OpType::kLOGISTIC, {input}, shape(input), {}, moments(input));
  at(output).quantization = {.scales = {1.0f / 256}, .zero_points = {-128}};
  return output;
}

int32_t NetworkBuilder::Softmax(int32_t input) {
  const int32_t output =
      AddMover(OpType::kSOFTMAX, {input}, shape(input), SoftmaxOptions{}, moments(input));
  at(output).quantization = {.scales = {1.0f / 256}, .zero_points = {-128}};
  return output;
}

int32_t NetworkBuilder::Dequantize(int32_t input) {
  const int32_t output = AddMover(OpType::kDEQUANTIZE, {input}, shape(input), {}, moments(input));
  at(output).type = DataType::kFloat32;
  at(output).quantization = {};
  return output;
}

int32_t NetworkBuilder::ToUInt8(int32_t input) {
  const int32_t output = AddMover(OpType::kQUANTIZE, {input}, shape(input), {}, moments(input));
  at(output).type = DataType::kUInt8;
  at(output).quantization.zero_points[0] += 128;
  return output;
}

int32_t NetworkBuilder::ArgMax(int32_t input) {
  Shape out = shape(input);
  const int32_t axis = Integers(LayerName("axis"), {static_cast<int32_t>(out.size()) - 1});
  at(axis).shape = {};
  out.pop_back();
  const int32_t output = AddMover(OpType::kARG_MAX, {input, axis}, std::move(out), {}, {{}});
  at(output).type = DataType::kInt64;
  at(output).quantization = {};
  return output;
}

std::vector<int32_t> NetworkBuilder::Custom(const std::string& name, OpOptions options,
                                            std::vector<int32_t> inputs,
                                            const std::vector<Shape>& outputs) {
  Node node;
  node.custom_name = name;
  node.inputs = std::move(inputs);
  node.options = std::move(options);
  for (const Shape& out : outputs) {
    node.outputs.push_back(AddTensor(LayerName("out") + "_" + std::to_string(node.outputs.size()),
                                     DataType::kFloat32, out));
  }
  model_.graph.nodes.push_back(node);
  return node.outputs;
}

Result<ZooModel> NetworkBuilder::Finish() && {
  ATOLL_RETURN_IF_ERROR(status_);
  ATOLL_RETURN_IF_ERROR(InferShapes(&model_.graph));
  return std::move(model_);
}

}  // namespace atollrt
