// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of operators that slide a window over an image.
#include <utility>

#include "runtime/shapes/shape_rules.h"

namespace atollrt {
namespace {

// From the first cell under a line of windows to the last one, padding included. Every position in
// it fits 32 bits, so kernels need not care; TensorFlow Lite's own arithmetic ends there, too.
Status CheckReach(const char* dimension, const WindowSize& size, int32_t output) {
  const int64_t reach =
      (int64_t{output} - 1) * size.stride + (int64_t{size.filter} - 1) * size.dilation + 1;
  if (reach <= INT32_MAX) return Status();
  return Unsupported(
      "%d windows of %s %d, with stride %d and dilation %d, reach over %lld cells; "
      "at most %d are supported",
      output, dimension, size.filter, size.stride, size.dilation, static_cast<long long>(reach),
      INT32_MAX);
}

// Sets the height and width of `output`.
Status InferWindow(const WindowSize& h, const WindowSize& w, Padding padding, Shape* output) {
  const WindowResult rows = ResolveWindow(h, padding);
  const WindowResult columns = ResolveWindow(w, padding);
  if (rows.output < 1 || columns.output < 1) {
    return CorruptModel("a window of %dx%d does not fit into an image of %dx%d", h.filter, w.filter,
                        h.input, w.input);
  }
  ATOLL_RETURN_IF_ERROR(CheckReach("height", h, rows.output));
  ATOLL_RETURN_IF_ERROR(CheckReach("width", w, columns.output));
  (*output)[1] = rows.output;
  (*output)[2] = columns.output;
  return Status();
}

}  // namespace

Status InferConv2D(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  Shape output;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 3}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 4));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 4));
  const Conv2DOptions& options = std::get<Conv2DOptions>(node.options);
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("stride_h", options.stride_h));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("stride_w", options.stride_w));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("dilation_h", options.dilation_h));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("dilation_w", options.dilation_w));
  const Shape& input = graph.Input(node, 0)->shape;
  const Shape& weights = graph.Input(node, 1)->shape;
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("filter height", weights[1]));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("filter width", weights[2]));
  const bool depthwise = node.type == OpType::kDEPTHWISE_CONV_2D;
  const int32_t output_channels = depthwise ? weights[3] : weights[0];
  if (depthwise) {
    if (weights[0] != 1) {
      return CorruptModel("weights have shape %s; the first size must be 1",
                          ShapeString(weights).c_str());
    }
    if (output_channels % input[3] != 0) {
      return CorruptModel("%d output channels are not a multiple of %d input channels",
                          output_channels, input[3]);
    }
  } else if (input[3] % weights[3] != 0 || output_channels % (input[3] / weights[3]) != 0) {
    return CorruptModel("input with %d channels does not fit weights of shape %s", input[3],
                        ShapeString(weights).c_str());
  }
  const Tensor* bias = graph.Input(node, 2);
  if (bias != nullptr && bias->element_count() != output_channels) {
    return CorruptModel("bias has %lld elements for %d output channels",
                        static_cast<long long>(bias->element_count()), output_channels);
  }
  output = {input[0], 0, 0, output_channels};
  ATOLL_RETURN_IF_ERROR(InferWindow({input[1], weights[1], options.stride_h, options.dilation_h},
                                    {input[2], weights[2], options.stride_w, options.dilation_w},
                                    options.padding, &output));
  outputs->push_back(std::move(output));
  return Status();
}

Status InferTransposeConv(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 4}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 4));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[2], 4));
  const Conv2DOptions& options = std::get<Conv2DOptions>(node.options);
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("stride_h", options.stride_h));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("stride_w", options.stride_w));
  const Shape& weights = graph.Input(node, 1)->shape;
  const Shape& input = graph.Input(node, 2)->shape;
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("filter height", weights[1]));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("filter width", weights[2]));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ConstantInput(graph, node, 0));
  Shape output;
  for (const int64_t size : sizes) {
    if (size < 1 || size > INT32_MAX) {
      return CorruptModel("the output shape has a size of %lld", static_cast<long long>(size));
    }
    output.push_back(static_cast<int32_t>(size));
  }
  if (output.size() != 4 || output[0] != input[0] || output[3] != weights[0] ||
      input[3] != weights[3]) {
    return CorruptModel("output shape %s does not fit an input of %s and weights of %s",
                        ShapeString(output).c_str(), ShapeString(input).c_str(),
                        ShapeString(weights).c_str());
  }
  const Tensor* bias = graph.Input(node, 3);
  if (bias != nullptr && bias->element_count() != output[3]) {
    return CorruptModel("bias has %lld elements for %d output channels",
                        static_cast<long long>(bias->element_count()), output[3]);
  }
  outputs->push_back(std::move(output));
  return Status();
}

Status InferResize(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 4));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> size, ConstantInput(graph, node, 1));
  if (size.size() != 2) return CorruptModel("the size has %zu numbers, must have 2", size.size());
  Shape output = graph.Input(node, 0)->shape;
  for (size_t i = 0; i < 2; ++i) {
    if (size[i] < 1 || size[i] > INT32_MAX) {
      return CorruptModel("the size is %lld x %lld", static_cast<long long>(size[0]),
                          static_cast<long long>(size[1]));
    }
    output[i + 1] = static_cast<int32_t>(size[i]);
  }
  outputs->push_back(std::move(output));
  return Status();
}

Status InferPool2D(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  Shape output;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 4));
  const Pool2DOptions& options = std::get<Pool2DOptions>(node.options);
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("stride_h", options.stride_h));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("stride_w", options.stride_w));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("filter_height", options.filter_h));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("filter_width", options.filter_w));
  const Shape& input = graph.Input(node, 0)->shape;
  output = {input[0], 0, 0, input[3]};
  ATOLL_RETURN_IF_ERROR(InferWindow({input[1], options.filter_h, options.stride_h, 1},
                                    {input[2], options.filter_w, options.stride_w, 1},
                                    options.padding, &output));
  outputs->push_back(std::move(output));
  return Status();
}

}  // namespace atollrt
