// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of layers: windows over an image, layers with a memory, variables, and the decoders
// of detections and poses.
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

template <typename Options>
Status CheckStrides(const Options& options) {
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("stride_h", options.stride_h));
  return CheckWindowParameter("stride_w", options.stride_w);
}

Status CheckShape(const Graph& graph, const Node& node, size_t position, const Shape& shape) {
  const Tensor* tensor = graph.Input(node, position);
  if (tensor == nullptr) return CorruptModel("input %zu is absent", position);
  if (tensor->shape != shape) {
    return CorruptModel("input %zu has shape %s, must be %s", position,
                        ShapeString(tensor->shape).c_str(), ShapeString(shape).c_str());
  }
  return Status();
}

}  // namespace

Result<Shapes> InferConv2D(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 3}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 4));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 4));
  const Conv2DOptions& options = std::get<Conv2DOptions>(node.options);
  ATOLL_RETURN_IF_ERROR(CheckStrides(options));
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
  ATOLL_RETURN_IF_ERROR(CheckBiasSize(graph.Input(node, 2), output_channels, "output channels"));
  Shape output = {input[0], 0, 0, output_channels};
  ATOLL_RETURN_IF_ERROR(InferWindow({input[1], weights[1], options.stride_h, options.dilation_h},
                                    {input[2], weights[2], options.stride_w, options.dilation_w},
                                    options.padding, &output));
  return One(std::move(output));
}

Result<Shapes> InferTransposeConv(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 4}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 4));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[2], 4));
  const Conv2DOptions& options = std::get<Conv2DOptions>(node.options);
  ATOLL_RETURN_IF_ERROR(CheckStrides(options));
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
  ATOLL_RETURN_IF_ERROR(CheckBiasSize(graph.Input(node, 3), output[3], "output channels"));
  return One(std::move(output));
}

Result<Shapes> InferResize(const Graph& graph, const Node& node) {
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
  return One(std::move(output));
}

Result<Shapes> InferPool2D(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 4));
  const Pool2DOptions& options = std::get<Pool2DOptions>(node.options);
  ATOLL_RETURN_IF_ERROR(CheckStrides(options));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("filter_height", options.filter_h));
  ATOLL_RETURN_IF_ERROR(CheckWindowParameter("filter_width", options.filter_w));
  const Shape& input = graph.Input(node, 0)->shape;
  Shape output = {input[0], 0, 0, input[3]};
  ATOLL_RETURN_IF_ERROR(InferWindow({input[1], options.filter_h, options.stride_h, 1},
                                    {input[2], options.filter_w, options.stride_w, 1},
                                    options.padding, &output));
  return One(std::move(output));
}

Result<Shapes> InferLstm(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 24}));
  // Forms that change shapes or arithmetic, by the inputs that make them.
  constexpr struct {
    size_t first, last;
    const char* form;
  } kForms[] = {
      {9, 11, "peephole connections"}, {16, 17, "a projection"}, {20, 23, "layer normalization"}};
  for (const auto& [first, last, form] : kForms) {
    for (size_t i = first; i <= last; ++i) {
      if (graph.Input(node, i) != nullptr) return Unsupported("%s (input %zu)", form, i);
    }
  }
  if (graph.Input(node, 1) == nullptr || graph.Input(node, 5) == nullptr ||
      graph.Input(node, 12) == nullptr) {
    return Unsupported("coupled input and forget gates (CIFG): no input gate");
  }
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 3));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 2));
  const Shape& x = graph.Input(node, 0)->shape;
  const int32_t units = graph.Input(node, 1)->shape[0];
  const bool time_major = std::get<LstmOptions>(node.options).time_major;
  const int32_t batch = x[time_major ? 1 : 0];
  for (size_t gate = 0; gate < 4; ++gate) {
    ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 1 + gate, {units, x[2]}));
    ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 5 + gate, {units, units}));
    ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 12 + gate, {units}));
  }
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 18, {batch, units}));
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 19, {batch, units}));
  return One({x[0], x[1], units});
}

Result<Shapes> InferSvdf(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 5}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 2));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 2));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[2], 2));
  const Shape& x = graph.Input(node, 0)->shape;
  const int32_t filters = graph.Input(node, 1)->shape[0];
  const int32_t memory = graph.Input(node, 2)->shape[1];
  const int32_t rank = std::get<SvdfOptions>(node.options).rank;
  if (rank < 1 || filters % rank != 0) {
    return CorruptModel("rank %d does not divide %d filters", rank, filters);
  }
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 1, {filters, x[1]}));
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 2, {filters, memory}));
  if (graph.Input(node, 3) != nullptr) {
    ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 3, {filters / rank}));
  }
  int32_t state = 0;
  if (__builtin_mul_overflow(filters, memory, &state)) {
    return CorruptModel("%d filters with a memory of %d", filters, memory);
  }
  ATOLL_RETURN_IF_ERROR(CheckShape(graph, node, 4, {x[0], state}));
  return One({x[0], filters / rank});
}

Result<Shapes> InferCallOnce(const Graph&, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {0, 0, 0}));
  return Shapes();
}

// A handle is one number.
Result<Shapes> InferVarHandle(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {0, 0, 1}));
  if (graph.Output(node).type != DataType::kResource) {
    return CorruptModel("the output has type %s, must be resource",
                        DataTypeName(graph.Output(node).type));
  }
  return One({});
}

// The stored shape counts, as for an input of the graph; that it is the variable's is checked when
// all graphs are there.
Result<Shapes> InferReadVariable(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  return One(graph.Output(node).shape);
}

Result<Shapes> InferAssignVariable(const Graph&, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2, 0}));
  return Shapes();
}

Result<Shapes> InferDetectionPostProcess(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 3, 4}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 3));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 3));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[2], 2));
  const Shape& encodings = graph.Input(node, 0)->shape;
  const Shape& scores = graph.Input(node, 1)->shape;
  const Shape& anchors = graph.Input(node, 2)->shape;
  if (encodings[0] != 1 || scores[0] != 1 || encodings[1] != anchors[0] ||
      scores[1] != anchors[0] || encodings[2] < 4 || anchors[1] != 4) {
    return CorruptModel("encodings %s, scores %s and anchors %s do not fit together",
                        ShapeString(encodings).c_str(), ShapeString(scores).c_str(),
                        ShapeString(anchors).c_str());
  }
  const DetectionOptions& options = std::get<DetectionOptions>(node.options);
  if (scores[2] != options.num_classes && scores[2] - 1 != options.num_classes) {
    return CorruptModel("%d columns of scores for %d classes and at most one background", scores[2],
                        options.num_classes);
  }
  const int32_t entries = options.max_detections * options.max_classes_per_detection;
  return Shapes{{1, entries, 4}, {1, entries}, {1, entries}, {1}};
}

Result<Shapes> InferPosenetDecoder(const Graph& graph, const Node& node) {
  constexpr int32_t kKeypoints = 17;
  constexpr int32_t kEdges = 16;
  constexpr int32_t kMaskSize = 33;
  // Long offsets give masks.
  const size_t maps = graph.Input(node, 3) == nullptr ? 3 : 4;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 4, maps + 1}));
  // A y and an x per keypoint; the same per edge, forward and backward.
  constexpr int32_t kChannels[] = {kKeypoints, 2 * kKeypoints, 4 * kEdges, 2 * kKeypoints};
  for (size_t i = 0; i < maps; ++i) {
    ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[i], 4));
    const Shape& map = graph.Input(node, 0)->shape;
    const Shape& shape = graph.Input(node, i)->shape;
    if (shape != Shape{1, map[1], map[2], kChannels[i]}) {
      return CorruptModel("input %zu has shape %s, must be [1, %d, %d, %d]", i,
                          ShapeString(shape).c_str(), map[1], map[2], kChannels[i]);
    }
  }
  const int32_t poses = std::get<PosenetOptions>(node.options).max_detections;
  Shapes outputs = {{1, poses, kKeypoints, 2}, {1, poses, kKeypoints}, {1, poses}, {1}};
  if (maps == 4) outputs.push_back({1, poses, kMaskSize, kMaskSize});
  return outputs;
}

}  // namespace atollrt
