// SPDX-License-Identifier: Apache-2.0
#include "tests/support/model_builder.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/graph/shape_inference.h"
#include "tflite_generated.h"

namespace atollrt {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

struct StoredOptions {
  tflite::BuiltinOptions type = tflite::BuiltinOptions::NONE;
  Offset<void> table;
};

tflite::Activation Stored(Activation activation) {
  return static_cast<tflite::Activation>(activation);
}
tflite::Padding Stored(Padding padding) { return static_cast<tflite::Padding>(padding); }

StoredOptions WriteOptions(FlatBufferBuilder* fbb, const Node& node) {
  using Type = tflite::BuiltinOptions;
  if (const auto* o = std::get_if<Conv2DOptions>(&node.options)) {
    if (node.type == OpType::kDEPTHWISE_CONV_2D) {
      return {Type::DepthwiseConv2DOptions,
              tflite::CreateDepthwiseConv2DOptions(*fbb, Stored(o->padding), o->stride_w,
                                                   o->stride_h, 1, Stored(o->activation),
                                                   o->dilation_w, o->dilation_h)
                  .Union()};
    }
    if (node.type == OpType::kTRANSPOSE_CONV) {
      return {Type::TransposeConvOptions,
              tflite::CreateTransposeConvOptions(*fbb, Stored(o->padding), o->stride_w, o->stride_h,
                                                 Stored(o->activation))
                  .Union()};
    }
    return {Type::Conv2DOptions,
            tflite::CreateConv2DOptions(*fbb, Stored(o->padding), o->stride_w, o->stride_h,
                                        Stored(o->activation), o->dilation_w, o->dilation_h)
                .Union()};
  }
  if (const auto* o = std::get_if<Pool2DOptions>(&node.options)) {
    return {Type::Pool2DOptions,
            tflite::CreatePool2DOptions(*fbb, Stored(o->padding), o->stride_w, o->stride_h,
                                        o->filter_w, o->filter_h, Stored(o->activation))
                .Union()};
  }
  if (const auto* o = std::get_if<FullyConnectedOptions>(&node.options)) {
    return {Type::FullyConnectedOptions,
            tflite::CreateFullyConnectedOptions(*fbb, Stored(o->activation),
                                                tflite::WeightsFormat::Default, o->keep_num_dims)
                .Union()};
  }
  if (const auto* o = std::get_if<SoftmaxOptions>(&node.options)) {
    return {Type::SoftmaxOptions, tflite::CreateSoftmaxOptions(*fbb, o->beta).Union()};
  }
  if (const auto* o = std::get_if<AxisOptions>(&node.options)) {
    if (node.type == OpType::kGATHER) {
      return {Type::GatherOptions, tflite::CreateGatherOptions(*fbb, o->axis, o->count).Union()};
    }
    if (node.type == OpType::kPACK) {
      return {Type::PackOptions, tflite::CreatePackOptions(*fbb, o->count, o->axis).Union()};
    }
    if (node.type == OpType::kUNPACK) {
      return {Type::UnpackOptions, tflite::CreateUnpackOptions(*fbb, o->count, o->axis).Union()};
    }
    return {Type::ConcatenationOptions,
            tflite::CreateConcatenationOptions(*fbb, o->axis, Stored(o->activation)).Union()};
  }
  if (const auto* o = std::get_if<ElementwiseOptions>(&node.options)) {
    const tflite::Activation activation = Stored(o->activation);
    switch (node.type) {
      case OpType::kSUB:
        return {Type::SubOptions, tflite::CreateSubOptions(*fbb, activation).Union()};
      case OpType::kMUL:
        return {Type::MulOptions, tflite::CreateMulOptions(*fbb, activation).Union()};
      case OpType::kDIV:
        return {Type::DivOptions, tflite::CreateDivOptions(*fbb, activation).Union()};
      case OpType::kL2_NORMALIZATION:
        return {Type::L2NormOptions, tflite::CreateL2NormOptions(*fbb, activation).Union()};
      default:
        return {Type::AddOptions, tflite::CreateAddOptions(*fbb, activation).Union()};
    }
  }
  if (const auto* o = std::get_if<ResizeOptions>(&node.options)) {
    if (node.type == OpType::kRESIZE_BILINEAR) {
      return {Type::ResizeBilinearOptions,
              tflite::CreateResizeBilinearOptions(*fbb, o->align_corners, o->half_pixel_centers)
                  .Union()};
    }
    return {Type::ResizeNearestNeighborOptions, tflite::CreateResizeNearestNeighborOptions(
                                                    *fbb, o->align_corners, o->half_pixel_centers)
                                                    .Union()};
  }
  if (const auto* o = std::get_if<BatchMatMulOptions>(&node.options)) {
    return {Type::BatchMatMulOptions,
            tflite::CreateBatchMatMulOptions(*fbb, o->transpose_lhs, o->transpose_rhs).Union()};
  }
  if (const auto* o = std::get_if<LeakyReluOptions>(&node.options)) {
    return {Type::LeakyReluOptions, tflite::CreateLeakyReluOptions(*fbb, o->alpha).Union()};
  }
  if (const auto* o = std::get_if<ReshapeOptions>(&node.options)) {
    return {Type::ReshapeOptions,
            tflite::CreateReshapeOptions(*fbb, fbb->CreateVector(o->new_shape)).Union()};
  }
  if (const auto* o = std::get_if<ReducerOptions>(&node.options)) {
    return {Type::ReducerOptions, tflite::CreateReducerOptions(*fbb, o->keep_dims).Union()};
  }
  if (const auto* o = std::get_if<LstmOptions>(&node.options)) {
    return {Type::UnidirectionalSequenceLSTMOptions,
            tflite::CreateUnidirectionalSequenceLSTMOptions(
                *fbb, Stored(o->activation), o->cell_clip, o->projection_clip, o->time_major)
                .Union()};
  }
  if (const auto* o = std::get_if<SvdfOptions>(&node.options)) {
    return {Type::SVDFOptions,
            tflite::CreateSVDFOptions(*fbb, o->rank, Stored(o->activation)).Union()};
  }
  if (const auto* o = std::get_if<CallOnceOptions>(&node.options)) {
    return {Type::CallOnceOptions, tflite::CreateCallOnceOptions(*fbb, o->subgraph).Union()};
  }
  if (const auto* o = std::get_if<VarHandleOptions>(&node.options)) {
    const auto container = fbb->CreateString(o->container);
    const auto shared_name = fbb->CreateString(o->shared_name);
    return {Type::VarHandleOptions,
            tflite::CreateVarHandleOptions(*fbb, container, shared_name).Union()};
  }
  if (const auto* o = std::get_if<SqueezeOptions>(&node.options)) {
    return {Type::SqueezeOptions,
            tflite::CreateSqueezeOptions(*fbb, fbb->CreateVector(o->dims)).Union()};
  }
  if (const auto* o = std::get_if<BlockOptions>(&node.options)) {
    if (node.type == OpType::kDEPTH_TO_SPACE) {
      return {Type::DepthToSpaceOptions,
              tflite::CreateDepthToSpaceOptions(*fbb, o->block_size).Union()};
    }
    return {Type::SpaceToDepthOptions,
            tflite::CreateSpaceToDepthOptions(*fbb, o->block_size).Union()};
  }
  if (const auto* o = std::get_if<StridedSliceOptions>(&node.options)) {
    return {Type::StridedSliceOptions,
            tflite::CreateStridedSliceOptions(*fbb, o->begin_mask, o->end_mask, o->ellipsis_mask,
                                              o->new_axis_mask, o->shrink_axis_mask, o->offset)
                .Union()};
  }
  if (const auto* o = std::get_if<SplitOptions>(&node.options)) {
    if (node.type == OpType::kSPLIT_V) {
      return {Type::SplitVOptions, tflite::CreateSplitVOptions(*fbb, o->num_splits).Union()};
    }
    return {Type::SplitOptions, tflite::CreateSplitOptions(*fbb, o->num_splits).Union()};
  }
  if (const auto* o = std::get_if<MirrorPadOptions>(&node.options)) {
    return {
        Type::MirrorPadOptions,
        tflite::CreateMirrorPadOptions(*fbb, static_cast<tflite::MirrorPadMode>(o->mode)).Union()};
  }
  return {};
}

Offset<tflite::Tensor> WriteTensor(FlatBufferBuilder* fbb, const Tensor& tensor, uint32_t buffer) {
  Offset<tflite::QuantizationParameters> quantization;
  const Quantization& q = tensor.quantization;
  if (!q.scales.empty() || !q.zero_points.empty()) {
    // One after the other: compilers evaluate the arguments of a call in different orders.
    const auto scales = fbb->CreateVector(q.scales);
    const auto zero_points = fbb->CreateVector(q.zero_points);
    quantization =
        tflite::CreateQuantizationParameters(*fbb, 0, 0, scales, zero_points, {}, 0, q.dimension);
  }
  const auto shape = fbb->CreateVector(tensor.shape);
  const auto name = fbb->CreateString(tensor.name);
  return tflite::CreateTensor(*fbb, shape, static_cast<int8_t>(tensor.type), buffer, name,
                              quantization, tensor.is_variable);
}

Offset<tflite::OperatorCode> WriteCode(FlatBufferBuilder* fbb, const Node& node) {
  Offset<flatbuffers::String> custom;
  if (node.type == OpType::kCUSTOM) custom = fbb->CreateString(node.custom_name);
  const int32_t code = static_cast<int32_t>(node.type);
  return tflite::CreateOperatorCode(*fbb, static_cast<int8_t>(std::min(code, 127)), custom,
                                    node.version, code);
}

Offset<tflite::Operator> WriteNode(FlatBufferBuilder* fbb, const Node& node, uint32_t code) {
  const StoredOptions options = WriteOptions(fbb, node);
  const auto inputs = fbb->CreateVector(node.inputs);
  const auto outputs = fbb->CreateVector(node.outputs);
  Offset<flatbuffers::Vector<uint8_t>> custom_options;
  if (!node.custom_options.empty()) {
    custom_options = fbb->CreateVector(node.custom_options.data(), node.custom_options.size());
  }
  const auto intermediates = fbb->CreateVector(node.intermediates);
  return tflite::CreateOperator(*fbb, code, inputs, outputs, options.type, options.table,
                                custom_options, {}, 0, intermediates);
}

// Appends to `buffers` and `codes` what the graph needs of its own.
Offset<tflite::SubGraph> WriteSubgraph(FlatBufferBuilder* fbb, const Graph& graph,
                                       std::vector<Offset<tflite::Buffer>>* buffers,
                                       std::vector<Offset<tflite::OperatorCode>>* codes) {
  std::vector<Offset<tflite::Tensor>> tensors;
  for (const Tensor& tensor : graph.tensors) {
    uint32_t buffer = 0;
    if (tensor.is_constant()) {
      buffer = static_cast<uint32_t>(buffers->size());
      fbb->ForceVectorAlignment(tensor.data.size(), 1, 16);
      const auto data = fbb->CreateVector(tensor.data.data(), tensor.data.size());
      buffers->push_back(tflite::CreateBuffer(*fbb, data));
    }
    tensors.push_back(WriteTensor(fbb, tensor, buffer));
  }
  std::vector<Offset<tflite::Operator>> nodes;
  for (const Node& node : graph.nodes) {
    nodes.push_back(WriteNode(fbb, node, static_cast<uint32_t>(codes->size())));
    codes->push_back(WriteCode(fbb, node));
  }
  const auto stored_tensors = fbb->CreateVector(tensors);
  const auto inputs = fbb->CreateVector(graph.inputs);
  const auto outputs = fbb->CreateVector(graph.outputs);
  const auto stored_nodes = fbb->CreateVector(nodes);
  const auto name = fbb->CreateString(graph.name);
  return tflite::CreateSubGraph(*fbb, stored_tensors, inputs, outputs, stored_nodes, name);
}

}  // namespace

std::vector<uint8_t> WriteTflite(const Graph& graph, uint32_t schema_version) {
  return WriteTflite(std::vector{&graph}, schema_version);
}

std::vector<uint8_t> WriteTflite(const std::vector<const Graph*>& graphs, uint32_t schema_version) {
  FlatBufferBuilder fbb;
  // Buffer 0 is the empty one by convention.
  std::vector<Offset<tflite::Buffer>> buffers{tflite::CreateBuffer(fbb)};
  std::vector<Offset<tflite::OperatorCode>> codes;
  std::vector<Offset<tflite::SubGraph>> subgraphs;
  for (const Graph* graph : graphs) {
    subgraphs.push_back(WriteSubgraph(&fbb, *graph, &buffers, &codes));
  }
  const auto stored_subgraphs = fbb.CreateVector(subgraphs);
  const auto stored_codes = fbb.CreateVector(codes);
  const auto stored_buffers = fbb.CreateVector(buffers);
  tflite::FinishModelBuffer(fbb, tflite::CreateModel(fbb, schema_version, stored_codes,
                                                     stored_subgraphs, 0, stored_buffers));
  return {fbb.GetBufferPointer(), fbb.GetBufferPointer() + fbb.GetSize()};
}
int32_t ModelBuilder::Activation(Shape shape) {
  const int32_t index = static_cast<int32_t>(graph_.tensors.size());
  Tensor tensor;
  tensor.name = "t" + std::to_string(index);
  tensor.type = DataType::kInt8;
  tensor.shape = std::move(shape);
  tensor.quantization = {.scales = {1.0f / 16}, .zero_points = {-3}};
  graph_.tensors.push_back(std::move(tensor));
  return index;
}

int32_t ModelBuilder::Input(Shape shape) {
  const int32_t index = Activation(std::move(shape));
  graph_.inputs.push_back(index);
  return index;
}

int32_t ModelBuilder::Constant(DataType type, Shape shape, std::vector<uint8_t> bytes) {
  const int32_t index = Activation(std::move(shape));
  constants_.push_back(std::move(bytes));
  tensor(index).type = type;
  tensor(index).quantization = {};
  tensor(index).data = constants_.back();
  return index;
}

int32_t ModelBuilder::Integers(Shape shape, const std::vector<int32_t>& values) {
  std::vector<uint8_t> bytes(values.size() * 4);
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return Constant(DataType::kInt32, std::move(shape), std::move(bytes));
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
  atollrt::Node node;
  node.type = type;
  node.inputs = std::move(inputs);
  node.outputs = {output};
  node.options = std::move(options);
  graph_.nodes.push_back(std::move(node));
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

int32_t ModelBuilder::FullyConnected(int32_t input, int32_t units) {
  const Shape shape = tensor(input).shape;
  const int32_t depth = static_cast<int32_t>(ElementCount(shape) / shape[0]);
  const int32_t weights = Weights({units, depth}, 0);
  const int32_t bias = Bias(units);
  return Node(OpType::kFULLY_CONNECTED, {input, weights, bias}, {shape[0], units},
              FullyConnectedOptions{});
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
  Shape shape = tensor(inputs[0]).shape;
  const size_t dimension = static_cast<size_t>(axis);
  shape[dimension] = 0;
  for (const int32_t input : inputs) shape[dimension] += tensor(input).shape[dimension];
  return Node(OpType::kCONCATENATION, inputs, std::move(shape), AxisOptions{.axis = axis});
}

int32_t ModelBuilder::Reshape(int32_t input, Shape shape) {
  return Node(OpType::kRESHAPE, {input}, shape, ReshapeOptions{.new_shape = shape});
}

int32_t ModelBuilder::Relu(int32_t input) {
  return Node(OpType::kRELU, {input}, tensor(input).shape);
}

int32_t ModelBuilder::Logistic(int32_t input) {
  const int32_t output = Node(OpType::kLOGISTIC, {input}, tensor(input).shape);
  tensor(output).quantization = {.scales = {1.0f / 256}, .zero_points = {-128}};
  return output;
}

int32_t ModelBuilder::Softmax(int32_t input) {
  const int32_t output = Node(OpType::kSOFTMAX, {input}, tensor(input).shape, SoftmaxOptions{});
  tensor(output).quantization = {.scales = {1.0f / 256}, .zero_points = {-128}};
  return output;
}

int32_t ModelBuilder::Custom(const std::string& name, int32_t input) {
  const int32_t output = Node(OpType::kCUSTOM, {input}, tensor(input).shape);
  graph_.nodes.back().custom_name = name;
  return output;
}

std::shared_ptr<const Model> ModelBuilder::Load() const {
  auto model = Model::FromBuffer(Build());
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *std::move(model) : nullptr;
}

}  // namespace atollrt
