// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/filter_tensors.h"

#include <algorithm>

#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

Status CheckWeightScales(const Tensor& weights, int32_t channel_dimension) {
  const Quantization& q = weights.quantization;
  const int32_t channels = weights.shape[channel_dimension];
  if (q.scales.empty()) return CorruptModel("weights '%s' have no scale", weights.name.c_str());
  if (q.scales.size() > 1) {
    if (weights.type == DataType::kUInt8) {
      return CorruptModel("uint8 weights '%s' have %zu scales, must have 1", weights.name.c_str(),
                          q.scales.size());
    }
    if (q.dimension != channel_dimension || static_cast<int32_t>(q.scales.size()) != channels) {
      return CorruptModel(
          "weights '%s' have %zu scales along dimension %d, must have 1 or %d "
          "along dimension %d",
          weights.name.c_str(), q.scales.size(), q.dimension, channels, channel_dimension);
    }
  }
  for (size_t i = 0; weights.type == DataType::kInt8 && i < q.zero_points.size(); ++i) {
    if (q.zero_points[i] != 0) {
      return CorruptModel("int8 weights '%s' have zero_point[%zu] = %lld, must be 0",
                          weights.name.c_str(), i, static_cast<long long>(q.zero_points[i]));
    }
  }
  return Status();
}

// Sets strides, dilations and pads of a filter over an image of `image_h` x `image_w`, and returns
// the number of its positions there.
struct Positions {
  int32_t h, w;
};
Positions SetWindow(const Conv2DOptions& options, int32_t image_h, int32_t image_w,
                    ConvShape* shape) {
  const WindowResult rows = ResolveWindow(
      {image_h, shape->kernel_h, options.stride_h, options.dilation_h}, options.padding);
  const WindowResult columns = ResolveWindow(
      {image_w, shape->kernel_w, options.stride_w, options.dilation_w}, options.padding);
  shape->stride_h = options.stride_h;
  shape->stride_w = options.stride_w;
  shape->dilation_h = options.dilation_h;
  shape->dilation_w = options.dilation_w;
  shape->pad_top = rows.pad_before;
  shape->pad_left = columns.pad_before;
  return {rows.output, columns.output};
}

}  // namespace

FilterTensors FilterTensorsOf(const Graph& graph, const Node& node) {
  // TRANSPOSE_CONV: output shape, weights, activations, bias.
  const bool transposed = node.type == OpType::kTRANSPOSE_CONV;
  return {.input = *graph.Input(node, transposed ? 2 : 0),
          .weights = *graph.Input(node, 1),
          .bias = graph.Input(node, transposed ? 3 : 2),
          .output = graph.Output(node),
          .channel_dimension = node.type == OpType::kDEPTHWISE_CONV_2D ? 3 : 0};
}

FilterKind FilterKindOf(const Node& node) {
  return node.type == OpType::kDEPTHWISE_CONV_2D ? FilterKind::kDepthwise : FilterKind::kConv;
}

ConvShape FilterShape(const Graph& graph, const Node& node) {
  const FilterTensors t = FilterTensorsOf(graph, node);
  const Shape& input = t.input.shape;
  const Shape& weights = t.weights.shape;
  ConvShape shape;
  shape.output_c = weights[t.channel_dimension];
  if (node.type == OpType::kFULLY_CONNECTED) {
    shape.input_c = weights[1];
    shape.batch = static_cast<int32_t>(t.input.element_count() / shape.input_c);
    return shape;
  }
  shape.batch = input[0];
  shape.input_h = input[1];
  shape.input_w = input[2];
  shape.input_c = input[3];
  shape.kernel_h = weights[1];
  shape.kernel_w = weights[2];
  const Conv2DOptions& options = std::get<Conv2DOptions>(node.options);
  if (node.type == OpType::kTRANSPOSE_CONV) {
    // The padding is that of the convolution which maps the output to the input.
    shape.output_h = t.output.shape[1];
    shape.output_w = t.output.shape[2];
    SetWindow(options, shape.output_h, shape.output_w, &shape);
    return shape;
  }
  const Positions positions = SetWindow(options, shape.input_h, shape.input_w, &shape);
  shape.output_h = positions.h;
  shape.output_w = positions.w;
  if (node.type == OpType::kCONV_2D) shape.groups = shape.input_c / weights[3];
  return shape;
}

Pool2DParams PoolShape(const Graph& graph, const Node& node) {
  const Shape& input = graph.Input(node, 0)->shape;
  const Pool2DOptions& options = std::get<Pool2DOptions>(node.options);
  const WindowResult rows =
      ResolveWindow({input[1], options.filter_h, options.stride_h, 1}, options.padding);
  const WindowResult columns =
      ResolveWindow({input[2], options.filter_w, options.stride_w, 1}, options.padding);
  Pool2DParams params;
  params.batch = input[0];
  params.input_h = input[1];
  params.input_w = input[2];
  params.channels = input[3];
  params.output_h = rows.output;
  params.output_w = columns.output;
  params.kernel_h = options.filter_h;
  params.kernel_w = options.filter_w;
  params.stride_h = options.stride_h;
  params.stride_w = options.stride_w;
  params.pad_top = rows.pad_before;
  params.pad_left = columns.pad_before;
  params.kind = node.type == OpType::kMAX_POOL_2D ? PoolKind::kMax : PoolKind::kAverage;
  return params;
}

Activation FusedActivation(const Node& node) {
  if (const auto* options = std::get_if<Conv2DOptions>(&node.options)) return options->activation;
  if (const auto* options = std::get_if<Pool2DOptions>(&node.options)) return options->activation;
  return std::get<FullyConnectedOptions>(node.options).activation;
}

Status CheckWeights(const FilterTensors& tensors, DataType type) {
  const Tensor& weights = tensors.weights;
  if (!weights.is_constant()) {
    return Unsupported("weights '%s' are not constant", weights.name.c_str());
  }
  if (weights.type != type) {
    return CorruptModel("weights '%s' have type %s, must be %s for an input of type %s",
                        weights.name.c_str(), DataTypeName(weights.type), DataTypeName(type),
                        DataTypeName(tensors.input.type));
  }
  if (type == DataType::kFloat32) return Status();
  return CheckWeightScales(weights, tensors.channel_dimension);
}

Status CheckBias(const FilterTensors& tensors, std::initializer_list<DataType> types) {
  const Tensor* bias = tensors.bias;
  if (bias == nullptr) return Status();
  if (std::find(types.begin(), types.end(), bias->type) == types.end()) {
    return CorruptModel("bias '%s' has type %s, must be %s for an input of type %s",
                        bias->name.c_str(), DataTypeName(bias->type), DataTypeName(*types.begin()),
                        DataTypeName(tensors.input.type));
  }
  if (!bias->is_constant()) return Unsupported("bias '%s' is not constant", bias->name.c_str());
  return Status();
}

}  // namespace atollrt
