// SPDX-License-Identifier: Apache-2.0
#include "quantize/rewrite.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "quantize/infinities.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

bool IsQuantizedType(DataType type) {
  return type == DataType::kInt8 || type == DataType::kUInt8 || type == DataType::kInt16;
}

}  // namespace

Status DequantizeWeights(EditedGraph* edited) {
  Graph& graph = edited->graph;
  std::vector<int32_t> floats(graph.tensors.size(), -1);
  for (Node& node : graph.nodes) {
    if (node.outputs.empty() || graph.Output(node).type != DataType::kFloat32) continue;
    if (node.type != OpType::kDEQUANTIZE && !IsFilter(node) && node.type != OpType::kBATCH_MATMUL) {
      continue;
    }
    for (int32_t& input : node.inputs) {
      if (input < 0 || !graph.tensors[input].is_constant()) continue;
      const Tensor stored = graph.tensors[input];
      if (stored.type != DataType::kInt8 || stored.quantization.scales.empty()) continue;
      if (floats[input] < 0) {
        const Quantization& q = stored.quantization;
        ATOLL_ASSIGN_OR_RETURN(const int32_t made, edited->NewFloats(stored.name, stored.shape));
        const std::span<float> values = edited->OwnFloats(made);
        int64_t inner = 1;
        for (size_t d = q.dimension + size_t{1}; d < stored.shape.size(); ++d) {
          inner *= stored.shape[d];
        }
        for (size_t i = 0; i < values.size(); ++i) {
          const size_t channel =
              q.scales.size() == 1 ? 0 : (i / static_cast<size_t>(inner)) % q.scales.size();
          const auto byte = static_cast<int8_t>(stored.data[i]);
          values[i] = q.scales[channel] * static_cast<float>(byte - q.zero_points[channel]);
        }
        floats[input] = made;
        floats.resize(graph.tensors.size(), -1);
      }
      input = floats[input];
    }
  }
  // What is left of DEQUANTIZE reads floats now and is no node any more.
  std::vector<int32_t> stands_for(graph.tensors.size(), -1);
  std::vector<bool> marked(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    for (int32_t& input : node.inputs) {
      if (input >= 0 && stands_for[input] >= 0) input = stands_for[input];
    }
    if (node.type != OpType::kDEQUANTIZE || node.inputs.size() != 1 || node.inputs[0] < 0) continue;
    const Tensor& from = graph.tensors[node.inputs[0]];
    if (!from.is_constant() || from.type != DataType::kFloat32) continue;
    stands_for[node.outputs[0]] = node.inputs[0];
    graph.tensors[node.outputs[0]].data = from.data;
    marked[i] = true;
  }
  RemoveNodes(std::move(marked), &graph);
  return Status();
}

namespace {

Status RefuseQuantizedActivations(const Graph& graph) {
  for (const int32_t input : graph.inputs) {
    const Tensor& tensor = graph.tensors[input];
    if (!IsQuantizedType(tensor.type) || tensor.quantization.scales.empty()) continue;
    return Unsupported(
        "input '%s' is %s with scale %g: the model is quantized already; give the float model that "
        "it was made of",
        tensor.name.c_str(), DataTypeName(tensor.type), static_cast<double>(tensor.scale()));
  }
  for (const Node& node : graph.nodes) {
    for (const int32_t output : node.outputs) {
      const Tensor& tensor = graph.tensors[output];
      if (!IsQuantizedType(tensor.type) || tensor.quantization.scales.empty()) continue;
      return Unsupported(
          "%s writes %s with scale %g: the model is quantized already; give the float model that "
          "it was made of",
          Describe(graph, node).c_str(), DataTypeName(tensor.type),
          static_cast<double>(tensor.scale()));
    }
  }
  return Status();
}

// Nodes of constants alone, as long as there is room for what they compute.
void FoldConstants(EditedGraph* edited) {
  Graph& graph = edited->graph;
  std::vector<bool> marked(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto is_constant = [&graph](int32_t input) {
      return input < 0 || graph.tensors[input].is_constant();
    };
    const auto has_values = [&graph](int32_t output) {
      return graph.tensors[output].byte_size() > 0;
    };
    if (node.inputs.empty() || node.outputs.empty() || node.type == OpType::kCUSTOM ||
        !std::all_of(node.inputs.begin(), node.inputs.end(), is_constant) ||
        !std::all_of(node.outputs.begin(), node.outputs.end(), has_values)) {
      continue;
    }
    int64_t bytes = 0;
    for (const int32_t output : node.outputs) bytes += graph.tensors[output].byte_size();
    if (bytes > edited->room) continue;
    std::vector<Buffer> outputs;
    bool allocated = true;
    for (const int32_t output : node.outputs) {
      Result<Buffer> buffer =
          Buffer::Allocate(static_cast<size_t>(graph.tensors[output].byte_size()));
      allocated = allocated && buffer.ok();
      if (buffer.ok()) outputs.push_back(*std::move(buffer));
    }
    // What cannot be computed now stays a node, and its error is that of whoever runs it.
    if (!allocated || !EvaluateNode(graph, node, outputs).ok()) continue;
    edited->room -= bytes;
    for (size_t k = 0; k < outputs.size(); ++k) {
      graph.tensors[node.outputs[k]].data = outputs[k].bytes();
      edited->values.push_back(std::move(outputs[k]));
    }
    marked[i] = true;
  }
  RemoveNodes(std::move(marked), &graph);
}

int32_t OutputChannels(const Graph& graph, const Node& node) {
  const Shape& weights = graph.Input(node, kFilterWeights)->shape;
  return weights[static_cast<size_t>(ChannelDimension(node))];
}

bool HasFloatWeights(const Graph& graph, const Node& node) {
  const Tensor* weights = graph.Input(node, kFilterWeights);
  const Tensor* bias = graph.Input(node, FilterBias(node));
  return weights->is_constant() && weights->type == DataType::kFloat32 &&
         (bias == nullptr || (bias->is_constant() && bias->type == DataType::kFloat32));
}

// A constant with one value for each of `channels`, the last dimension, or one for all.
bool IsPerChannel(const Tensor& tensor, int32_t channels) {
  if (!tensor.is_constant() || tensor.type != DataType::kFloat32) return false;
  if (tensor.element_count() == 1) return true;
  return tensor.element_count() == channels && tensor.shape.back() == channels;
}

// value * factor + addend, for each channel.
struct Affine {
  std::vector<float> factor, addend;
};

// What `node`, whose input `position` is the layer's output, does to each of its channels.
Affine AffineOf(const Node& node, size_t position, const Tensor& operand, int32_t channels) {
  const std::span<const float> values = Floats(operand);
  Affine affine{std::vector<float>(static_cast<size_t>(channels), 1.0f),
                std::vector<float>(static_cast<size_t>(channels), 0.0f)};
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    const float value = values[values.size() == 1 ? 0 : c];
    switch (node.type) {
      case OpType::kMUL:
        affine.factor[c] = value;
        break;
      case OpType::kDIV:
        affine.factor[c] = 1.0f / value;
        break;
      case OpType::kADD:
        affine.addend[c] = value;
        break;
      default:  // SUB
        affine.factor[c] = position == 0 ? 1.0f : -1.0f;
        affine.addend[c] = position == 0 ? -value : value;
    }
  }
  return affine;
}

Status ApplyAffine(const Affine& affine, EditedGraph* edited, size_t layer) {
  Graph& graph = edited->graph;
  const size_t channels = affine.factor.size();
  const std::string name = graph.Output(graph.nodes[layer]).name;
  const bool scales = std::any_of(affine.factor.begin(), affine.factor.end(),
                                  [](float factor) { return factor != 1.0f; });
  if (scales) {
    const Tensor weights = *graph.Input(graph.nodes[layer], kFilterWeights);
    ATOLL_ASSIGN_OR_RETURN(const int32_t made, edited->NewFloats(weights.name, weights.shape));
    const std::span<const float> from = Floats(weights);
    const std::span<float> to = edited->OwnFloats(made);
    const bool last = ChannelDimension(graph.nodes[layer]) == 3;
    const size_t inner = last ? 1 : from.size() / channels;
    for (size_t i = 0; i < from.size(); ++i) to[i] = from[i] * affine.factor[i / inner % channels];
    graph.nodes[layer].inputs[kFilterWeights] = made;
  }
  const size_t position = FilterBias(graph.nodes[layer]);
  ATOLL_ASSIGN_OR_RETURN(const int32_t made,
                         edited->NewFloats(name + "/bias", {static_cast<int32_t>(channels)}));
  Node& node = graph.nodes[layer];
  const Tensor* bias = graph.Input(node, position);
  const std::span<float> to = edited->OwnFloats(made);
  for (size_t c = 0; c < channels; ++c) {
    const float before = bias == nullptr ? 0.0f : Floats(*bias)[c];
    to[c] = before * affine.factor[c] + affine.addend[c];
  }
  node.inputs.resize(std::max(node.inputs.size(), position + 1), -1);
  node.inputs[position] = made;
  if (node.type == OpType::kTRANSPOSE_CONV) node.version = std::max(node.version, 3);
  return Status();
}

// Divisions by constants become multiplications, which have a form for bytes: what they compute
// differs by a rounding of the float at most.
Status MultiplyInsteadOfDividing(EditedGraph* edited) {
  for (size_t i = 0; i < edited->graph.nodes.size(); ++i) {
    if (edited->graph.nodes[i].type != OpType::kDIV) continue;
    const int32_t divisor = edited->graph.nodes[i].inputs[1];
    const Tensor stored = edited->graph.tensors[divisor];
    if (!stored.is_constant() || stored.type != DataType::kFloat32) continue;
    const std::span<const float> values = Floats(stored);
    if (!std::all_of(values.begin(), values.end(),
                     [](float v) { return std::isnormal(v) && std::isnormal(1.0f / v); })) {
      continue;
    }
    ATOLL_ASSIGN_OR_RETURN(const int32_t made, edited->NewFloats(stored.name, stored.shape));
    const std::span<float> reciprocals = edited->OwnFloats(made);
    for (size_t k = 0; k < values.size(); ++k) reciprocals[k] = 1.0f / values[k];
    Node& node = edited->graph.nodes[i];
    node.type = OpType::kMUL;
    node.version = 1;
    node.inputs[1] = made;
  }
  return Status();
}

// Batch normalization, however it is written.
Status FoldAffines(EditedGraph* edited) {
  Graph& graph = edited->graph;
  std::vector<int32_t> producers = Producers(graph);
  const std::vector<int32_t> readers = ReaderCounts(graph);
  std::vector<bool> marked(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node node = graph.nodes[i];
    if (node.type != OpType::kMUL && node.type != OpType::kADD && node.type != OpType::kSUB &&
        node.type != OpType::kDIV) {
      continue;
    }
    for (const size_t position : {size_t{0}, size_t{1}}) {
      const int32_t value = node.inputs[position];
      const int32_t layer = producers[value];
      if (layer < 0 || readers[value] != 1 || (node.type == OpType::kDIV && position == 1))
        continue;
      Node& filter = graph.nodes[layer];
      if (!IsFilter(filter) || !HasFloatWeights(graph, filter)) continue;
      Activation* activation = FusedActivationOf(&filter);
      if (activation != nullptr && *activation != Activation::kNone) continue;
      const Activation behind = std::get<ElementwiseOptions>(node.options).activation;
      if (activation == nullptr && behind != Activation::kNone) continue;
      const Tensor& operand = graph.tensors[node.inputs[1 - position]];
      const int32_t channels = OutputChannels(graph, filter);
      if (!IsPerChannel(operand, channels) ||
          std::isfinite(SmallestInfinity(node, Floats(operand))) ||
          graph.Output(node).shape != graph.tensors[value].shape) {
        continue;
      }
      ATOLL_RETURN_IF_ERROR(ApplyAffine(AffineOf(node, position, operand, channels), edited,
                                        static_cast<size_t>(layer)));
      Node& changed = graph.nodes[layer];
      if (activation != nullptr) *FusedActivationOf(&changed) = behind;
      changed.outputs[0] = node.outputs[0];
      producers[node.outputs[0]] = layer;
      marked[i] = true;
      break;
    }
  }
  RemoveNodes(std::move(marked), &graph);
  return Status();
}

std::optional<Activation> ActivationOf(OpType type) {
  switch (type) {
    case OpType::kRELU:
      return Activation::kRelu;
    case OpType::kRELU6:
      return Activation::kRelu6;
    case OpType::kRELU_N1_TO_1:
      return Activation::kReluN1To1;
    default:
      return std::nullopt;
  }
}

void FuseActivations(Graph* graph) {
  std::vector<int32_t> producers = Producers(*graph);
  const std::vector<int32_t> readers = ReaderCounts(*graph);
  std::vector<bool> marked(graph->nodes.size(), false);
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    const Node& node = graph->nodes[i];
    const std::optional<Activation> activation = ActivationOf(node.type);
    if (!activation || graph->Output(node).type != DataType::kFloat32) continue;
    const int32_t value = node.inputs[0];
    if (producers[value] < 0 || readers[value] != 1) continue;
    Node& before = graph->nodes[producers[value]];
    Activation* fused = FusedActivationOf(&before);
    if (fused == nullptr || *fused != Activation::kNone) continue;
    *fused = *activation;
    before.outputs[0] = node.outputs[0];
    producers[node.outputs[0]] = producers[value];
    marked[i] = true;
  }
  RemoveNodes(std::move(marked), graph);
}

// Whether VALID over the input padded by `before` and `after` reads what SAME over the input does.
bool IsSame(const WindowSize& size, int64_t before, int64_t after) {
  const WindowResult same = ResolveWindow(size, Padding::kSame);
  WindowSize padded = size;
  padded.input += static_cast<int32_t>(before + after);
  const WindowResult valid = ResolveWindow(padded, Padding::kValid);
  return before == same.pad_before && valid.output == same.output;
}

void FusePads(Graph* graph) {
  const std::vector<int32_t> producers = Producers(*graph);
  for (Node& node : graph->nodes) {
    if (node.type != OpType::kCONV_2D && node.type != OpType::kDEPTHWISE_CONV_2D) continue;
    auto& options = std::get<Conv2DOptions>(node.options);
    const int32_t producer = producers[node.inputs[0]];
    if (options.padding != Padding::kValid || producer < 0) continue;
    const Node& pad = graph->nodes[producer];
    if (pad.type != OpType::kPAD || !graph->Input(pad, 1)->is_constant()) continue;
    const std::vector<int64_t> sizes = ConstantIntegers(*graph->Input(pad, 1));
    const Shape& input = graph->Input(pad, 0)->shape;
    const Shape& weights = graph->Input(node, kFilterWeights)->shape;
    if (sizes.size() != 8 || sizes[0] != 0 || sizes[1] != 0 || sizes[6] != 0 || sizes[7] != 0) {
      continue;
    }
    if (IsSame({input[1], weights[1], options.stride_h, options.dilation_h}, sizes[2], sizes[3]) &&
        IsSame({input[2], weights[2], options.stride_w, options.dilation_w}, sizes[4], sizes[5])) {
      options.padding = Padding::kSame;
      node.inputs[0] = pad.inputs[0];
    }
  }
  RemoveNodes(std::vector<bool>(graph->nodes.size(), false), graph);
}

// Finds x * relu6(x + 3) / 6 behind its last node.
class HardSwishFinder {
 public:
  explicit HardSwishFinder(const Graph& graph) : graph_(graph), producers_(Producers(graph)) {}

  // The x of the HARD_SWISH that `node` ends; -1: it is none.
  int32_t Find(const Node& node) const {
    if (!IsPlain(node)) return -1;
    // (x * relu6) / 6.
    const int32_t product = Scaled(node);
    if (product >= 0 && producers_[product] >= 0) {
      const Node& inner = graph_.nodes[producers_[product]];
      if (inner.type == OpType::kMUL && IsPlain(inner)) {
        for (const size_t k : {size_t{0}, size_t{1}}) {
          if (Gate(inner.inputs[1 - k]) == inner.inputs[k]) return inner.inputs[k];
        }
      }
    }
    if (node.type != OpType::kMUL) return -1;
    // x * (relu6 / 6), (x / 6) * relu6.
    for (const size_t k : {size_t{0}, size_t{1}}) {
      const int32_t other = node.inputs[1 - k];
      if (producers_[other] < 0) continue;
      const Node& scaling = graph_.nodes[producers_[other]];
      if (!IsPlain(scaling)) continue;
      const int32_t inner = Scaled(scaling);
      if (inner < 0) continue;
      if (Gate(inner) == node.inputs[k] && Gate(inner) >= 0) return node.inputs[k];
      if (Gate(node.inputs[k]) == inner) return inner;
    }
    return -1;
  }

 private:
  static bool IsPlain(const Node& node) {
    const auto* options = std::get_if<ElementwiseOptions>(&node.options);
    return (node.type == OpType::kMUL || node.type == OpType::kDIV) && options != nullptr &&
           options->activation == Activation::kNone;
  }
  bool IsScalar(int32_t tensor, float value) const {
    const Tensor& t = graph_.tensors[tensor];
    return t.is_constant() && t.type == DataType::kFloat32 && t.element_count() == 1 &&
           std::abs(Floats(t)[0] - value) <= 1e-6f * std::abs(value);
  }
  // What `node` divides by 6; -1: it does something else.
  int32_t Scaled(const Node& node) const {
    if (node.type == OpType::kDIV) return IsScalar(node.inputs[1], 6.0f) ? node.inputs[0] : -1;
    for (const size_t k : {size_t{0}, size_t{1}}) {
      if (IsScalar(node.inputs[1 - k], 1.0f / 6.0f)) return node.inputs[k];
    }
    return -1;
  }
  // The x of relu6(x + 3); -1: `tensor` is something else.
  int32_t Gate(int32_t tensor) const {
    int32_t producer = producers_[tensor];
    if (producer < 0) return -1;
    bool clamped = false;
    if (graph_.nodes[producer].type == OpType::kRELU6) {
      producer = producers_[graph_.nodes[producer].inputs[0]];
      if (producer < 0) return -1;
      clamped = true;
    }
    const Node& add = graph_.nodes[producer];
    if (add.type != OpType::kADD) return -1;
    const Activation wanted = clamped ? Activation::kNone : Activation::kRelu6;
    if (std::get<ElementwiseOptions>(add.options).activation != wanted) return -1;
    for (const size_t k : {size_t{0}, size_t{1}}) {
      if (IsScalar(add.inputs[1 - k], 3.0f)) return add.inputs[k];
    }
    return -1;
  }

  const Graph& graph_;
  const std::vector<int32_t> producers_;
};

void FuseHardSwish(Graph* graph) {
  const HardSwishFinder finder(*graph);
  std::vector<std::pair<size_t, int32_t>> found;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    const Node& node = graph->nodes[i];
    if (node.type != OpType::kMUL && node.type != OpType::kDIV) continue;
    const int32_t x = finder.Find(node);
    if (x >= 0 && graph->tensors[x].shape == graph->Output(node).shape) found.emplace_back(i, x);
  }
  for (const auto& [index, x] : found) {
    Node& node = graph->nodes[index];
    node.type = OpType::kHARD_SWISH;
    node.version = 1;
    node.inputs = {x};
    node.options = NoOptions();
  }
  RemoveNodes(std::vector<bool>(graph->nodes.size(), false), graph);
}

}  // namespace

Status RewriteFloatGraph(EditedGraph* edited) {
  ATOLL_RETURN_IF_ERROR(DequantizeWeights(edited));
  ATOLL_RETURN_IF_ERROR(RefuseQuantizedActivations(edited->graph));
  FoldConstants(edited);
  ATOLL_RETURN_IF_ERROR(MakeInfinitiesFinite(edited));
  FuseHardSwish(&edited->graph);
  ATOLL_RETURN_IF_ERROR(MultiplyInsteadOfDividing(edited));
  ATOLL_RETURN_IF_ERROR(FoldAffines(edited));
  FuseActivations(&edited->graph);
  FusePads(&edited->graph);
  return Status();
}

}  // namespace atollrt
