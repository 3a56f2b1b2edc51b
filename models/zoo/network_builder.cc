// SPDX-License-Identifier: Apache-2.0
#include "models/zoo/network_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/shapes/shape_inference.h"

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

// Places per channel below which its deviation is not worth measuring on its own.
constexpr int64_t kMinPlaces = 32;
// There, other pictures differ by more than the samples do.
constexpr double kUnseen = 2;
// No channel is amplified by more than this over the others.
constexpr double kMaxAmplification = 4;

NumberFormat OfProbabilities() {
  return {DataType::kInt8, {.scales = {1.0f / 256}, .zero_points = {-128}}};
}

Conv2DOptions OptionsOf(const Window& window) {
  return {.padding = window.padding,
          .stride_h = window.stride,
          .stride_w = window.stride,
          .dilation_h = window.dilation,
          .dilation_w = window.dilation};
}

Quantization Over(double low, double high) {
  const double scale = (high - low) / 255;
  return {.scales = {static_cast<float>(scale)}, .zero_points = {-128 - std::lround(low / scale)}};
}

}  // namespace

NetworkBuilder::NetworkBuilder(std::string name, const ZooOptions& options) : state_(options.seed) {
  model_.graph.name = std::move(name);
  if (options.weights == ZooOptions::Weights::kRandom) samples_ = std::make_unique<SampleRun>();
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

// ---- Tensors ------------------------------------------------------------------------------------

std::string NetworkBuilder::LayerName(const char* kind) {
  return std::string(kind) + "_" + std::to_string(model_.graph.nodes.size());
}

int32_t NetworkBuilder::Integers(const std::string& name, const std::vector<int32_t>& values) {
  return model_.AddNumbers(DataType::kInt32, {static_cast<int32_t>(values.size())}, values, name);
}

int32_t NetworkBuilder::Floats(Shape shape, const std::vector<float>& values) {
  return model_.AddNumbers(DataType::kFloat32, std::move(shape), values, LayerName("constant"));
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
  return model_.AddConstant(
      {DataType::kInt8, {.scales = {static_cast<float>(scale)}, .zero_points = {0}}},
      {static_cast<int32_t>(values.size())}, std::move(bytes), name);
}

int32_t NetworkBuilder::Input(int32_t h, int32_t w) {
  const int32_t tensor = model_.AddInput(
      {DataType::kInt8, {.scales = {1.0f / 127.5f}, .zero_points = {-1}}}, {1, h, w, 3}, "input");
  if (has_samples()) status_ = samples_->SetPictures(at(tensor), tensor);
  return tensor;
}

// ---- Layers -------------------------------------------------------------------------------------

int32_t NetworkBuilder::AddNode(OpType type, std::vector<int32_t> inputs, Shape shape,
                                OpOptions options, NumberFormat output) {
  const int32_t tensor = model_.AddTensor(std::move(output), std::move(shape), LayerName("out"));
  model_.AddNode(type, std::move(inputs), {tensor}, std::move(options)).version = VersionOf(type);
  return tensor;
}

void NetworkBuilder::RunSamples() {
  if (has_samples()) status_ = samples_->Run(model_.graph, model_.graph.nodes.back());
}

int32_t NetworkBuilder::AddMover(OpType type, std::vector<int32_t> inputs, Shape shape,
                                 OpOptions options) {
  Quantization same = at(inputs[0]).quantization;
  const int32_t output = AddNode(type, std::move(inputs), std::move(shape), std::move(options),
                                 {DataType::kInt8, std::move(same)});
  RunSamples();
  return output;
}

int32_t NetworkBuilder::AddLayer(OpType type, std::vector<int32_t> inputs, Shape shape,
                                 OpOptions options, Range range) {
  const int32_t output = AddNode(type, std::move(inputs), std::move(shape), std::move(options),
                                 {DataType::kInt8, Over(range.low, range.high)});
  RunSamples();
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

void NetworkBuilder::SetFilter(int32_t input, int32_t weights, int32_t bias,
                               const std::vector<double>& scales,
                               const std::vector<double>& biases) {
  const double input_scale = static_cast<double>(at(input).scale());
  // Ours, in model_.constants.
  uint8_t* stored = const_cast<uint8_t*>(at(bias).data.data());
  for (size_t o = 0; o < scales.size(); ++o) {
    at(weights).quantization.scales[o] = static_cast<float>(scales[o]);
    at(bias).quantization.scales[o] = static_cast<float>(scales[o] * input_scale);
    const double steps = std::clamp(biases[o] / (scales[o] * input_scale), -1e9, 1e9);
    const int32_t value = static_cast<int32_t>(std::lround(steps));
    std::memcpy(stored + 4 * o, &value, 4);
  }
}

// Runs the filter over a wide range first, to see what comes out of its random weights, and then
// scales and shifts each channel to what it should be.
void NetworkBuilder::Calibrate(const Filter& filter, int32_t input, int32_t weights, int32_t bias) {
  constexpr double kWide = 16;  // deviations
  const size_t outputs = static_cast<size_t>(filter.outputs);
  const size_t taps = static_cast<size_t>(filter.taps);
  const bool is_depthwise = filter.type == OpType::kDEPTHWISE_CONV_2D;
  const std::vector<Moments> in = samples_->MomentsOf(model_.graph, input);
  const int8_t* q = reinterpret_cast<const int8_t*>(at(weights).data.data());
  std::vector<double> scales(outputs), biases(outputs);
  for (size_t o = 0; o < outputs; ++o) {
    // As if the taps were independent.
    double mean = 0, variance = 0;
    for (size_t k = 0; k < taps; ++k) {
      const double weight = q[is_depthwise ? k * outputs + o : o * taps + k];
      const Moments& m = in[is_depthwise ? o : k % in.size()];
      mean += weight * m.mean;
      variance += weight * weight * m.variance;
    }
    scales[o] = 1 / std::sqrt(std::max(variance, 1e-6));
    biases[o] = -mean * scales[o];
  }
  SetFilter(input, weights, bias, scales, biases);
  const int32_t output = model_.graph.nodes.back().outputs[0];
  at(output).quantization = Over(-kWide, kWide);
  RunSamples();
  if (!status_.ok()) return;
  const std::vector<Moments> seen = samples_->MomentsOf(model_.graph, output);
  double pooled = 0;
  for (const Moments& m : seen) pooled += m.variance / static_cast<double>(outputs);
  pooled = std::sqrt(std::max(pooled, 1e-6));
  const bool is_measurable = SampleRun::PlacesOf(at(output)) >= kMinPlaces;
  for (size_t o = 0; o < outputs; ++o) {
    const double deviation = is_measurable
                                 ? std::max(std::sqrt(seen[o].variance), pooled / kMaxAmplification)
                                 : kUnseen * pooled;
    const double factor = filter.gain / deviation;
    biases[o] = (biases[o] - seen[o].mean) * factor + filter.gain * kMaxOffset * Real();
    scales[o] *= factor;
  }
  SetFilter(input, weights, bias, scales, biases);
}

int32_t NetworkBuilder::AddFilter(int32_t input, Shape shape, const Filter& filter,
                                  OpOptions options) {
  const size_t count = static_cast<size_t>(filter.outputs) * static_cast<size_t>(filter.taps);
  const size_t outputs = static_cast<size_t>(filter.outputs);
  const bool is_depthwise = filter.type == OpType::kDEPTHWISE_CONV_2D;
  Quantization by_channel = {.scales = std::vector<float>(outputs, 1.0f),
                             .zero_points = std::vector<int64_t>(outputs, 0),
                             .dimension = is_depthwise ? 3 : 0};
  const int32_t weights =
      model_.AddConstant({DataType::kInt8, by_channel}, filter.weights,
                         samples_ != nullptr ? RandomWeights(count) : std::vector<uint8_t>(count),
                         LayerName("weights"));
  by_channel.dimension = 0;
  const int32_t bias =
      model_.AddConstant({DataType::kInt32, std::move(by_channel)}, {filter.outputs},
                         std::vector<uint8_t>(4 * outputs), LayerName("bias"));
  std::vector<int32_t> operands = {input, weights, bias};
  if (filter.type == OpType::kTRANSPOSE_CONV) {
    operands = {Integers(LayerName("shape"), shape), weights, input, bias};
  }
  const double reach = kDeviations * filter.gain;
  const double low = filter.activation == Activation::kNone ? -reach : 0;
  const double high = filter.activation == Activation::kRelu6 ? std::min(reach, 6.0) : reach;
  const int32_t output = AddNode(filter.type, std::move(operands), std::move(shape), {},
                                 {DataType::kInt8, Over(low, high)});
  const auto set_activation = [&options](Activation activation) {
    std::visit(
        [activation](auto& o) {
          if constexpr (requires { o.activation; }) o.activation = activation;
        },
        options);
  };
  Node& node = model_.graph.nodes.back();
  if (has_samples()) {
    set_activation(Activation::kNone);
    node.options = options;
    Calibrate(filter, input, weights, bias);
  }
  set_activation(filter.activation);
  node.options = std::move(options);
  at(output).quantization = Over(low, high);
  RunSamples();
  return output;
}

int32_t NetworkBuilder::Conv(int32_t input, int32_t outputs, const Window& window) {
  const int32_t inputs = channels(input);
  return AddFilter(input, WindowShape(input, window, outputs),
                   {.type = OpType::kCONV_2D,
                    .weights = {outputs, window.h, window.w, inputs},
                    .outputs = outputs,
                    .taps = window.h * window.w * inputs,
                    .gain = window.gain,
                    .activation = window.activation},
                   OptionsOf(window));
}

int32_t NetworkBuilder::Depthwise(int32_t input, const Window& window) {
  const int32_t count = channels(input);
  return AddFilter(input, WindowShape(input, window, count),
                   {.type = OpType::kDEPTHWISE_CONV_2D,
                    .weights = {1, window.h, window.w, count},
                    .outputs = count,
                    .taps = window.h * window.w,
                    .gain = window.gain,
                    .activation = window.activation},
                   OptionsOf(window));
}

int32_t NetworkBuilder::UpConv(int32_t input, int32_t outputs, Activation activation) {
  constexpr int32_t kStride = 2, kSize = 3;
  const int32_t inputs = channels(input);
  return AddFilter(input, {1, kStride * shape(input)[1], kStride * shape(input)[2], outputs},
                   {.type = OpType::kTRANSPOSE_CONV,
                    .weights = {outputs, kSize, kSize, inputs},
                    .outputs = outputs,
                    .taps = kSize * kSize * inputs,
                    .activation = activation},
                   Conv2DOptions{.stride_h = kStride, .stride_w = kStride});
}

int32_t NetworkBuilder::FullyConnected(int32_t input, int32_t units, Activation activation,
                                       double gain) {
  const int32_t depth = static_cast<int32_t>(at(input).element_count());
  return AddFilter(input, {1, units},
                   {.type = OpType::kFULLY_CONNECTED,
                    .weights = {units, depth},
                    .outputs = units,
                    .taps = depth,
                    .gain = gain,
                    .activation = activation},
                   FullyConnectedOptions{});
}

int32_t NetworkBuilder::NormalizeRelu(int32_t input) {
  std::vector<Moments> moments(static_cast<size_t>(channels(input)));
  if (has_samples()) moments = samples_->MomentsOf(model_.graph, input);
  double pooled = 1e-6;
  for (const Moments& m : moments) {
    pooled += std::sqrt(m.variance) / static_cast<double>(moments.size());
  }
  std::vector<double> factors, offsets;
  double reach = 0;
  for (const Moments& m : moments) {
    const double deviation = std::max(std::sqrt(m.variance), pooled / kMaxAmplification);
    factors.push_back(1 / deviation);
    const double mean = m.mean / deviation;
    offsets.push_back(kMaxOffset * Real() - mean);
    reach = std::max(reach, std::abs(mean) + kDeviations);
  }
  const Shape out = shape(input);
  const int32_t factor = QuantizedVector(LayerName("factor"), factors);
  const int32_t product =
      AddLayer(OpType::kMUL, {input, factor}, out, ElementwiseOptions{}, {-reach, reach});
  const int32_t offset = QuantizedVector(LayerName("offset"), offsets);
  return AddLayer(OpType::kADD, {product, offset}, out,
                  ElementwiseOptions{.activation = Activation::kRelu}, {0, kDeviations});
}

int32_t NetworkBuilder::Add(int32_t a, int32_t b, Activation activation) {
  const double reach = has_samples() ? samples_->LargestSum(model_.graph, a, b) + 1e-3 : 1;
  const double low = activation == Activation::kNone ? -reach : 0;
  return AddLayer(OpType::kADD, {a, b}, shape(a), ElementwiseOptions{.activation = activation},
                  {low, reach});
}

int32_t NetworkBuilder::Concat(std::vector<int32_t> inputs) {
  const double scale = static_cast<double>(at(inputs[0]).scale());
  const double low = scale * (-128 - at(inputs[0]).zero_point());
  Shape out = shape(inputs[0]);
  out.back() = 0;
  for (int32_t& input : inputs) {
    if (at(input).scale() != at(inputs[0]).scale() ||
        at(input).zero_point() != at(inputs[0]).zero_point()) {
      input = AddLayer(OpType::kQUANTIZE, {input}, shape(input), {}, {low, low + 255 * scale});
      at(input).quantization = at(inputs[0]).quantization;  // to the last bit
    }
    out.back() += channels(input);
  }
  return ConcatAlong(std::move(inputs), static_cast<int32_t>(out.size()) - 1);
}

int32_t NetworkBuilder::ConcatAlong(std::vector<int32_t> inputs, int32_t axis) {
  Shape out = model_.ConcatenatedShape(inputs, axis);
  return AddMover(OpType::kCONCATENATION, std::move(inputs), std::move(out),
                  AxisOptions{.axis = axis});
}

int32_t NetworkBuilder::Pool(OpType type, int32_t input, const Window& window) {
  return AddMover(type, {input}, WindowShape(input, window, shape(input)[3]),
                  Pool2DOptions{.padding = window.padding,
                                .stride_h = window.stride,
                                .stride_w = window.stride,
                                .filter_h = window.h,
                                .filter_w = window.w});
}

int32_t NetworkBuilder::MaxPool(int32_t input, const Window& window) {
  return Pool(OpType::kMAX_POOL_2D, input, window);
}

int32_t NetworkBuilder::AveragePool(int32_t input, const Window& window) {
  return Pool(OpType::kAVERAGE_POOL_2D, input, window);
}

int32_t NetworkBuilder::GlobalAveragePool(int32_t input) {
  return AveragePool(input,
                     {.h = shape(input)[1], .w = shape(input)[2], .padding = Padding::kValid});
}

int32_t NetworkBuilder::Reshape(int32_t input, const Shape& out) {
  const int32_t size = Integers(LayerName("shape"), out);
  return AddMover(OpType::kRESHAPE, {input, size}, out, ReshapeOptions{.new_shape = out});
}

int32_t NetworkBuilder::ResizeBilinear(int32_t input, int32_t h, int32_t w) {
  const int32_t size = Integers(LayerName("size"), {h, w});
  return AddMover(OpType::kRESIZE_BILINEAR, {input, size}, {1, h, w, channels(input)},
                  ResizeOptions{.align_corners = true});
}

int32_t NetworkBuilder::Logistic(int32_t input) {
  return AddNode(OpType::kLOGISTIC, {input}, shape(input), {}, OfProbabilities());
}

int32_t NetworkBuilder::Softmax(int32_t input) {
  return AddNode(OpType::kSOFTMAX, {input}, shape(input), SoftmaxOptions{}, OfProbabilities());
}

int32_t NetworkBuilder::Dequantize(int32_t input) {
  return AddNode(OpType::kDEQUANTIZE, {input}, shape(input), {}, {DataType::kFloat32, {}});
}

int32_t NetworkBuilder::ToUInt8(int32_t input) {
  Quantization shifted = at(input).quantization;
  shifted.zero_points[0] += 128;
  return AddNode(OpType::kQUANTIZE, {input}, shape(input), {},
                 {DataType::kUInt8, std::move(shifted)});
}

int32_t NetworkBuilder::ArgMax(int32_t input) {
  Shape out = shape(input);
  const int32_t axis = Integers(LayerName("axis"), {static_cast<int32_t>(out.size()) - 1});
  at(axis).shape = {};
  out.pop_back();
  return AddNode(OpType::kARG_MAX, {input, axis}, std::move(out), {}, {DataType::kInt64, {}});
}

std::vector<int32_t> NetworkBuilder::Custom(const std::string& name, OpOptions options,
                                            std::vector<int32_t> inputs,
                                            const std::vector<Shape>& outputs) {
  std::vector<int32_t> tensors;
  for (const Shape& out : outputs) {
    tensors.push_back(model_.AddTensor({DataType::kFloat32, {}}, out,
                                       LayerName("out") + "_" + std::to_string(tensors.size())));
  }
  model_.AddNode(OpType::kCUSTOM, std::move(inputs), tensors, std::move(options)).custom_name =
      name;
  return tensors;
}

Result<ZooModel> NetworkBuilder::Finish() && {
  ATOLL_RETURN_IF_ERROR(status_);
  ATOLL_RETURN_IF_ERROR(InferShapes(&model_.graph));
  return std::move(model_);
}

}  // namespace atollrt
