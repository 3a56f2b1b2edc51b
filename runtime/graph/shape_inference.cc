// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/shape_inference.h"

#include <algorithm>

#include "runtime/base/bytes.h"

namespace atollrt {

WindowResult ResolveWindow(const WindowSize& size, Padding padding) {
  const int64_t extent = (int64_t{size.filter} - 1) * size.dilation + 1;
  WindowResult result;
  if (padding == Padding::kValid) {
    const int64_t cells = int64_t{size.input} + size.stride - extent;
    result.output = static_cast<int32_t>(std::max<int64_t>(0, cells / size.stride));
    return result;
  }
  result.output = static_cast<int32_t>((int64_t{size.input} + size.stride - 1) / size.stride);
  const int64_t needed = (int64_t{result.output} - 1) * size.stride + extent;
  result.pad_before = static_cast<int32_t>(std::max<int64_t>(0, needed - size.input) / 2);
  return result;
}

int32_t NormalizeAxis(int64_t axis, size_t rank) {
  const int64_t signed_rank = static_cast<int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) return -1;
  return static_cast<int32_t>(axis < 0 ? axis + signed_rank : axis);
}

bool BroadcastShapes(const Shape& a, const Shape& b, Shape* result) {
  const size_t rank = std::max(a.size(), b.size());
  result->assign(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const int32_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int32_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) return false;
    (*result)[rank - 1 - i] = da == 1 ? db : da;
  }
  return true;
}

namespace {

// Sizes beyond this make index arithmetic in int32 unsafe somewhere; no real layer comes near.
constexpr int32_t kMaxWindowParameter = 65535;

Status CheckPositive(const char* name, int32_t value) {
  if (value < 1 || value > kMaxWindowParameter) {
    return CorruptModel("%s is %d, must be 1 to %d", name, value, kMaxWindowParameter);
  }
  return Status();
}

Status CheckCounts(const Node& node, size_t min_inputs, size_t max_inputs) {
  if (node.inputs.size() < min_inputs || node.inputs.size() > max_inputs) {
    return CorruptModel("has %zu inputs, must have %zu to %zu", node.inputs.size(), min_inputs,
                        max_inputs);
  }
  for (size_t i = 0; i < min_inputs; ++i) {
    if (node.inputs[i] < 0) return CorruptModel("input %zu is absent", i);
  }
  if (node.outputs.size() != 1) {
    return CorruptModel("has %zu outputs, must have 1", node.outputs.size());
  }
  return Status();
}

Status CheckRank(const Graph& graph, int32_t tensor, size_t rank) {
  const Shape& shape = graph.tensors[tensor].shape;
  if (shape.size() != rank) {
    return CorruptModel("%s has shape %s, must have %zu dimensions",
                        Describe(graph, tensor).c_str(), ShapeString(shape).c_str(), rank);
  }
  for (const int32_t dim : shape) {
    if (dim < 1) {
      return CorruptModel("%s has shape %s; sizes must be at least 1",
                          Describe(graph, tensor).c_str(), ShapeString(shape).c_str());
    }
  }
  return Status();
}

// A constant vector of integers at an input: axes, sizes, paddings.
Result<std::vector<int64_t>> ConstantInput(const Graph& graph, const Node& node, size_t position) {
  const int32_t index = node.inputs[position];
  const Tensor& tensor = graph.tensors[index];
  if (tensor.type != DataType::kInt32 && tensor.type != DataType::kInt64) {
    return CorruptModel("%s has type %s, must be int32 or int64", Describe(graph, index).c_str(),
                        DataTypeName(tensor.type));
  }
  if (!tensor.is_constant() && tensor.element_count() > 0) {
    return Unsupported(
        "%s is computed at run time, which makes shapes dynamic; it must be a "
        "constant",
        Describe(graph, index).c_str());
  }
  if (tensor.element_count() == 0) return std::vector<int64_t>();
  return ConstantIntegers(tensor);
}

Status InferWindow(const WindowSize& h, const WindowSize& w, Padding padding, Shape* output) {
  const WindowResult rows = ResolveWindow(h, padding);
  const WindowResult columns = ResolveWindow(w, padding);
  if (rows.output < 1 || columns.output < 1) {
    return CorruptModel("a window of %dx%d does not fit into an image of %dx%d", h.filter, w.filter,
                        h.input, w.input);
  }
  (*output)[1] = rows.output;
  (*output)[2] = columns.output;
  return Status();
}

Status InferConv2D(const Graph& graph, const Node& node, Shape* output) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, 2, 3));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 4));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 4));
  const Conv2DOptions& options = std::get<Conv2DOptions>(node.options);
  ATOLL_RETURN_IF_ERROR(CheckPositive("stride_h", options.stride_h));
  ATOLL_RETURN_IF_ERROR(CheckPositive("stride_w", options.stride_w));
  ATOLL_RETURN_IF_ERROR(CheckPositive("dilation_h", options.dilation_h));
  ATOLL_RETURN_IF_ERROR(CheckPositive("dilation_w", options.dilation_w));
  const Shape& input = graph.Input(node, 0)->shape;
  const Shape& weights = graph.Input(node, 1)->shape;
  ATOLL_RETURN_IF_ERROR(CheckPositive("filter height", weights[1]));
  ATOLL_RETURN_IF_ERROR(CheckPositive("filter width", weights[2]));
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
  *output = {input[0], 0, 0, output_channels};
  return InferWindow({input[1], weights[1], options.stride_h, options.dilation_h},
                     {input[2], weights[2], options.stride_w, options.dilation_w}, options.padding,
                     output);
}

Status InferPool2D(const Graph& graph, const Node& node, Shape* output) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, 1, 1));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 4));
  const Pool2DOptions& options = std::get<Pool2DOptions>(node.options);
  ATOLL_RETURN_IF_ERROR(CheckPositive("stride_h", options.stride_h));
  ATOLL_RETURN_IF_ERROR(CheckPositive("stride_w", options.stride_w));
  ATOLL_RETURN_IF_ERROR(CheckPositive("filter_height", options.filter_h));
  ATOLL_RETURN_IF_ERROR(CheckPositive("filter_width", options.filter_w));
  const Shape& input = graph.Input(node, 0)->shape;
  *output = {input[0], 0, 0, input[3]};
  return InferWindow({input[1], options.filter_h, options.stride_h, 1},
                     {input[2], options.filter_w, options.stride_w, 1}, options.padding, output);
}

Status InferFullyConnected(const Graph& graph, const Node& node, Shape* output) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, 2, 3));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[1], 2));
  const Tensor& input = *graph.Input(node, 0);
  const Shape& weights = graph.Input(node, 1)->shape;
  const int32_t units = weights[0];
  const int32_t depth = weights[1];
  const int64_t elements = input.element_count();
  if (elements < 1 || elements % depth != 0) {
    return CorruptModel("input of shape %s is not a whole number of rows of %d",
                        ShapeString(input.shape).c_str(), depth);
  }
  const Tensor* bias = graph.Input(node, 2);
  if (bias != nullptr && bias->element_count() != units) {
    return CorruptModel("bias has %lld elements for %d units",
                        static_cast<long long>(bias->element_count()), units);
  }
  if (std::get<FullyConnectedOptions>(node.options).keep_num_dims) {
    if (input.shape.empty() || input.shape.back() != depth) {
      return CorruptModel("keep_num_dims with an input of shape %s and a depth of %d",
                          ShapeString(input.shape).c_str(), depth);
    }
    *output = input.shape;
    output->back() = units;
  } else {
    *output = {static_cast<int32_t>(elements / depth), units};
  }
  return Status();
}

Status InferReshape(const Graph& graph, const Node& node, Shape* output) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, 1, 2));
  const Tensor& input = *graph.Input(node, 0);
  const Tensor* shape_input = graph.Input(node, 1);
  std::vector<int64_t> target;
  if (shape_input != nullptr && shape_input->type == DataType::kInt32 &&
      shape_input->shape.size() == 1) {
    ATOLL_ASSIGN_OR_RETURN(target, ConstantInput(graph, node, 1));
  } else {
    const Shape& option = std::get<ReshapeOptions>(node.options).new_shape;
    target.assign(option.begin(), option.end());
    // Old converters wrote a scalar as [0].
    if (target.size() == 1 && target[0] == 0) target.clear();
  }
  int64_t known = 1;
  int inferred = -1;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == -1) {
      if (inferred >= 0) return CorruptModel("more than one size of the target is -1");
      inferred = static_cast<int>(i);
    } else if (target[i] < 0 || target[i] > INT32_MAX ||
               __builtin_mul_overflow(known, target[i], &known)) {
      return CorruptModel("size %zu of the target is %lld", i, static_cast<long long>(target[i]));
    }
  }
  const int64_t elements = input.element_count();
  if (inferred >= 0) {
    if (known == 0 || elements % known != 0) {
      return CorruptModel("%lld elements cannot be divided by the known sizes' product %lld",
                          static_cast<long long>(elements), static_cast<long long>(known));
    }
    target[inferred] = elements / known;
    known = elements;
  }
  if (known != elements) {
    return CorruptModel("%lld elements cannot become %lld", static_cast<long long>(elements),
                        static_cast<long long>(known));
  }
  output->assign(target.begin(), target.end());
  return Status();
}

Status InferSqueeze(const Graph& graph, const Node& node, Shape* output) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, 1, 1));
  const Shape& input = graph.Input(node, 0)->shape;
  std::vector<bool> drop(input.size());
  const std::vector<int32_t>& dims = std::get<SqueezeOptions>(node.options).dims;
  for (size_t i = 0; dims.empty() && i < input.size(); ++i) drop[i] = input[i] == 1;
  for (const int32_t dim : dims) {
    const int32_t axis = NormalizeAxis(dim, input.size());
    if (axis < 0 || input[axis] != 1) {
      return CorruptModel("cannot drop dimension %d of shape %s", dim, ShapeString(input).c_str());
    }
    drop[axis] = true;
  }
  output->clear();
  for (size_t i = 0; i < input.size(); ++i) {
    if (!drop[i]) output->push_back(input[i]);
  }
  return Status();
}

Status InferMean(const Graph& graph, const Node& node, Shape* output) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, 2, 2));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, ConstantInput(graph, node, 1));
  const Shape& input = graph.Input(node, 0)->shape;
  std::vector<bool> reduce(input.size());
  for (const int64_t value : axes) {
    const int32_t axis = NormalizeAxis(value, input.size());
    if (axis < 0) {
      return CorruptModel("axis %lld does not exist in shape %s", static_cast<long long>(value),
                          ShapeString(input).c_str());
    }
    reduce[axis] = true;
  }
  output->clear();
  for (size_t i = 0; i < input.size(); ++i) {
    if (!reduce[i]) {
      output->push_back(input[i]);
    } else if (std::get<ReducerOptions>(node.options).keep_dims) {
      output->push_back(1);
    }
  }
  return Status();
}

Status InferConcatenation(const Graph& graph, const Node& node, Shape* output) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, 1, 65536));
  *output = graph.Input(node, 0)->shape;
  const int32_t stored = std::get<ConcatenationOptions>(node.options).axis;
  const int32_t axis = NormalizeAxis(stored, output->size());
  if (axis < 0) {
    return CorruptModel("axis %d does not exist in shape %s", stored, ShapeString(*output).c_str());
  }
  int64_t total = (*output)[axis];
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Tensor* part = graph.Input(node, i);
    if (part == nullptr) return CorruptModel("input %zu is absent", i);
    const Shape& shape = part->shape;
    bool fits = shape.size() == output->size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      fits = static_cast<int32_t>(d) == axis || shape[d] == (*output)[d];
    }
    if (!fits) {
      return CorruptModel("input %zu of shape %s does not fit %s along axis %d", i,
                          ShapeString(shape).c_str(), ShapeString(*output).c_str(), axis);
    }
    total += shape[axis];
  }
  if (total > INT32_MAX) {
    return CorruptModel("size %lld along axis %d", static_cast<long long>(total), axis);
  }
  (*output)[axis] = static_cast<int32_t>(total);
  return Status();
}

Status InferPad(const Graph& graph, const Node& node, Shape* output) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, 2, 2));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> paddings, ConstantInput(graph, node, 1));
  const Shape& input = graph.Input(node, 0)->shape;
  const Shape& stored = graph.Input(node, 1)->shape;
  if (stored.size() != 2 || stored[0] != static_cast<int64_t>(input.size()) || stored[1] != 2) {
    return CorruptModel("paddings have shape %s, must be [%zu, 2]", ShapeString(stored).c_str(),
                        input.size());
  }
  *output = input;
  for (size_t i = 0; i < input.size(); ++i) {
    const int64_t before = paddings[2 * i];
    const int64_t after = paddings[2 * i + 1];
    if (before < 0 || after < 0 || before > INT32_MAX || after > INT32_MAX ||
        before + after + input[i] > INT32_MAX) {
      return CorruptModel("paddings of dimension %zu are %lld and %lld", i,
                          static_cast<long long>(before), static_cast<long long>(after));
    }
    (*output)[i] = static_cast<int32_t>(before + after + input[i]);
  }
  return Status();
}

Status InferBroadcast(const Graph& graph, const Node& node, Shape* output) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, 2, 2));
  const Shape& a = graph.Input(node, 0)->shape;
  const Shape& b = graph.Input(node, 1)->shape;
  if (!BroadcastShapes(a, b, output)) {
    return CorruptModel("shapes %s and %s do not broadcast", ShapeString(a).c_str(),
                        ShapeString(b).c_str());
  }
  return Status();
}

// False: an operator without a rule here.
Result<bool> InferNode(const Graph& graph, const Node& node, Shape* output) {
  Status status;
  switch (node.type) {
    case OpType::kCONV_2D:
    case OpType::kDEPTHWISE_CONV_2D:
      status = InferConv2D(graph, node, output);
      break;
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D:
      status = InferPool2D(graph, node, output);
      break;
    case OpType::kFULLY_CONNECTED:
      status = InferFullyConnected(graph, node, output);
      break;
    case OpType::kRESHAPE:
      status = InferReshape(graph, node, output);
      break;
    case OpType::kSQUEEZE:
      status = InferSqueeze(graph, node, output);
      break;
    case OpType::kMEAN:
      status = InferMean(graph, node, output);
      break;
    case OpType::kCONCATENATION:
      status = InferConcatenation(graph, node, output);
      break;
    case OpType::kPAD:
      status = InferPad(graph, node, output);
      break;
    case OpType::kADD:
    case OpType::kSUB:
      status = InferBroadcast(graph, node, output);
      break;
    case OpType::kSOFTMAX:
    case OpType::kLOGISTIC:
    case OpType::kTANH:
    case OpType::kRELU:
    case OpType::kRELU6:
    case OpType::kRELU_N1_TO_1:
    case OpType::kQUANTIZE:
    case OpType::kDEQUANTIZE:
      status = CheckCounts(node, 1, 1);
      if (status.ok()) *output = graph.Input(node, 0)->shape;
      break;
    default:
      return false;
  }
  if (!status.ok()) return status;
  return true;
}

}  // namespace

Status InferShapes(Graph* graph) {
  // Per tensor: the node without a rule on whose stored shapes its own depends. Files may store
  // no shapes at all, so what follows such a node may look wrong without being wrong.
  std::vector<const Node*> unknown(graph->tensors.size(), nullptr);
  for (const Node& node : graph->nodes) {
    const Node* origin = nullptr;
    for (const int32_t index : node.inputs) {
      if (index >= 0 && unknown[index] != nullptr) origin = unknown[index];
    }
    Shape output;
    Result<bool> inferred = InferNode(*graph, node, &output);
    if (!inferred.ok() && origin != nullptr) {
      return Unsupported(
          "%s: Atoll has no %soperator of this name, and the shapes stored for it do "
          "not fit %s",
          Describe(*graph, *origin).c_str(), origin->type == OpType::kCUSTOM ? "custom " : "",
          Describe(*graph, node).c_str());
    }
    if (!inferred.ok()) {
      return Status(inferred.status()).WithContext(Describe(*graph, node));
    }
    if (*inferred) {
      graph->tensors[node.outputs[0]].shape = std::move(output);
    } else {
      origin = &node;
    }
    for (const int32_t index : node.outputs) unknown[index] = origin;
    // Checked node by node, so that the products of later nodes cannot overflow.
    for (const int32_t index : node.outputs) {
      const Tensor& tensor = graph->tensors[index];
      uint64_t bytes = DataTypeSize(tensor.type);
      for (const int32_t dim : tensor.shape) {
        if (dim < 0 || !CheckedMultiply(bytes, static_cast<uint64_t>(dim), &bytes) ||
            bytes > static_cast<uint64_t>(kMaxTensorBytes)) {
          return Unsupported("%s writes %s of shape %s; sizes must be fixed and below %lld bytes",
                             Describe(*graph, node).c_str(), Describe(*graph, index).c_str(),
                             ShapeString(tensor.shape).c_str(),
                             static_cast<long long>(kMaxTensorBytes));
        }
      }
    }
  }
  return Status();
}

}  // namespace atollrt
