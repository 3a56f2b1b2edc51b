// SPDX-License-Identifier: Apache-2.0
#include "quantize/scheme.h"

#include <algorithm>
#include <cmath>

#include "quantize/edited_graph.h"

namespace atollrt {
namespace {

// Joint ranges that are at most this much wider than a part of them.
constexpr float kMaxWidening = 4.0f;
// The same where they end in an output of int8.
constexpr float kMaxOutputWidening = 8.0f;

float Width(const Range& range) { return std::max(range.high, 0.0f) - std::min(range.low, 0.0f); }

bool IsInside(const Range& inner, const Range& outer) {
  const float slack = Width(outer) / 255.0f;
  return inner.low >= outer.low - slack && inner.high <= outer.high + slack;
}

Range RangeOfEncoding(const Encoding& encoding) {
  const float low = encoding.type == DataType::kInt8 ? -128.0f : -32768.0f;
  const auto zero = static_cast<float>(encoding.zero_point);
  return {encoding.scale * (low - zero), encoding.scale * (-1.0f - low - zero)};
}

bool JoinsParts(const Node& node) {
  return node.type == OpType::kCONCATENATION || node.type == OpType::kPACK;
}

}  // namespace

void Range::Include(const Range& other) {
  if (!other.is_known()) return;
  if (!is_known()) {
    *this = other;
    return;
  }
  low = std::min(low, other.low);
  high = std::max(high, other.high);
}

Encoding EncodingOf(const Range& range, Precision precision) {
  const double low = range.is_known() ? std::min(static_cast<double>(range.low), 0.0) : 0.0;
  const double high = range.is_known() ? std::max(static_cast<double>(range.high), 0.0) : 0.0;
  // Scales that cannot be divided by would be worse than a wider range.
  constexpr double kSmallest = 1e-30;
  if (precision == Precision::kInt16) {
    const double largest = std::max(-low, high);
    if (largest < kSmallest) return {DataType::kInt16, 1.0f / 32767.0f, 0};
    return {DataType::kInt16, static_cast<float>(largest / 32767.0), 0};
  }
  if (high - low < kSmallest) return {DataType::kInt8, 1.0f / 255.0f, -128};
  const auto scale = static_cast<float>((high - low) / 255.0);
  const double zero_point = std::round(-128.0 - low / static_cast<double>(scale));
  return {DataType::kInt8, scale, static_cast<int32_t>(std::clamp(zero_point, -128.0, 127.0))};
}

OpRule RuleOf(OpType type, Precision precision) {
  const bool is_16 = precision == Precision::kInt16;
  switch (type) {
    case OpType::kCONV_2D:
    case OpType::kDEPTHWISE_CONV_2D:
    case OpType::kTRANSPOSE_CONV:
    case OpType::kFULLY_CONNECTED:
      return OpRule::kFilter;
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D:
    case OpType::kRESHAPE:
    case OpType::kSQUEEZE:
    case OpType::kEXPAND_DIMS:
    case OpType::kTRANSPOSE:
    case OpType::kSLICE:
    case OpType::kSTRIDED_SLICE:
    case OpType::kSPLIT:
    case OpType::kSPLIT_V:
    case OpType::kUNPACK:
    case OpType::kPACK:
    case OpType::kCONCATENATION:
    case OpType::kPAD:
    case OpType::kPADV2:
    case OpType::kMIRROR_PAD:
    case OpType::kGATHER:
    case OpType::kGATHER_ND:
    case OpType::kTILE:
    case OpType::kRESIZE_BILINEAR:
    case OpType::kRESIZE_NEAREST_NEIGHBOR:
    case OpType::kSPACE_TO_BATCH_ND:
    case OpType::kBATCH_TO_SPACE_ND:
    case OpType::kMAXIMUM:
    case OpType::kMINIMUM:
    case OpType::kREDUCE_MAX:
    case OpType::kREDUCE_MIN:
      return OpRule::kShared;
    case OpType::kSPACE_TO_DEPTH:
    case OpType::kDEPTH_TO_SPACE:
      return is_16 ? OpRule::kNone : OpRule::kShared;
    case OpType::kSUM:
      return is_16 ? OpRule::kShared : OpRule::kFree;
    case OpType::kADD:
    case OpType::kSUB:
    case OpType::kMUL:
    case OpType::kMEAN:
    case OpType::kBATCH_MATMUL:
    case OpType::kLEAKY_RELU:
    case OpType::kRELU:
    case OpType::kRELU6:
      return OpRule::kFree;
    case OpType::kPRELU:
    case OpType::kRELU_N1_TO_1:
    case OpType::kHARD_SWISH:
    case OpType::kEXP:
    case OpType::kRSQRT:
    case OpType::kSQUARED_DIFFERENCE:
      return is_16 ? OpRule::kNone : OpRule::kFree;
    case OpType::kSOFTMAX:
    case OpType::kLOGISTIC:
    case OpType::kTANH:
      return OpRule::kPrescribed;
    case OpType::kL2_NORMALIZATION:
    case OpType::kLOG_SOFTMAX:
      return is_16 ? OpRule::kNone : OpRule::kPrescribed;
    case OpType::kARG_MAX:
    case OpType::kARG_MIN:
    case OpType::kEQUAL:
    case OpType::kNOT_EQUAL:
    case OpType::kGREATER:
    case OpType::kGREATER_EQUAL:
    case OpType::kLESS:
    case OpType::kLESS_EQUAL:
      return is_16 ? OpRule::kNone : OpRule::kUnscaled;
    default:
      return OpRule::kNone;
  }
}

Encoding PrescribedEncoding(OpType type, Precision precision) {
  if (precision == Precision::kInt16) return {DataType::kInt16, 1.0f / 32768.0f, 0};
  switch (type) {
    case OpType::kTANH:
    case OpType::kL2_NORMALIZATION:
      return {DataType::kInt8, 1.0f / 128.0f, 0};
    case OpType::kLOG_SOFTMAX:
      return {DataType::kInt8, 16.0f / 256.0f, 127};
    default:  // SOFTMAX, LOGISTIC
      return {DataType::kInt8, 1.0f / 256.0f, -128};
  }
}

bool ComputesFloats(const Graph& graph, const Node& node) {
  const auto is_float = [&graph](int32_t index) {
    return index >= 0 && graph.tensors[index].type == DataType::kFloat32;
  };
  return std::any_of(node.inputs.begin(), node.inputs.end(), is_float) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), is_float);
}

std::vector<NodeChoice> Scheme::Choose(const Graph& graph, Precision wanted) {
  std::vector<NodeChoice> choices(graph.nodes.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    const Node& node = graph.nodes[i];
    NodeChoice& choice = choices[i];
    choice.precision = wanted;
    if (!ComputesFloats(graph, node)) {
      choice = {Precision::kFloat, "it computes no float values"};
      continue;
    }
    const OpRule rule = RuleOf(node.type, wanted);
    if (rule == OpRule::kNone) {
      choice = {Precision::kFloat, node.op_name() + " has no form for " +
                                       (wanted == Precision::kInt8 ? "int8" : "int16") +
                                       " activations"};
      continue;
    }
    const Tensor* bias = rule == OpRule::kFilter ? graph.Input(node, FilterBias(node)) : nullptr;
    if (rule == OpRule::kFilter && (!graph.Input(node, kFilterWeights)->is_constant() ||
                                    (bias != nullptr && !bias->is_constant()))) {
      choice = {Precision::kFloat, "its weights are not constant"};
    }
  }
  return choices;
}

std::vector<bool> NodesThatMoveTo(const Graph& graph, const std::vector<int32_t>& outputs) {
  const std::vector<int32_t> producers = Producers(graph);
  std::vector<bool> moves(graph.nodes.size(), false);
  std::vector<int32_t> open = outputs;
  while (!open.empty()) {
    const int32_t node = producers[open.back()];
    open.pop_back();
    if (node < 0 || moves[node]) continue;
    switch (graph.nodes[node].type) {
      case OpType::kRESHAPE:
      case OpType::kSQUEEZE:
      case OpType::kEXPAND_DIMS:
      case OpType::kTRANSPOSE:
      case OpType::kSLICE:
      case OpType::kSTRIDED_SLICE:
      case OpType::kSPLIT:
      case OpType::kSPLIT_V:
      case OpType::kUNPACK:
      case OpType::kPACK:
      case OpType::kCONCATENATION:
      case OpType::kGATHER:
      case OpType::kGATHER_ND:
        break;
      default:
        continue;
    }
    moves[node] = true;
    for (const int32_t input : graph.nodes[node].inputs) {
      if (input >= 0) open.push_back(input);
    }
  }
  return moves;
}

std::vector<std::string> Scheme::KeepPartsApart(const Graph& graph,
                                                const std::vector<Range>& ranges,
                                                std::vector<NodeChoice>* choices) {
  std::vector<std::string> sentences;
  const std::vector<bool> moves = NodesThatMoveTo(graph, graph.outputs);
  std::vector<bool> is_float(graph.tensors.size(), false);  // because of this
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    NodeChoice& choice = (*choices)[i];
    if (!moves[i] || choice.precision == Precision::kFloat) continue;
    const float widest = Width(ranges[node.outputs[0]]);
    const float most =
        choice.precision == Precision::kInt8 ? kMaxOutputWidening : 256.0f * kMaxOutputWidening;
    int32_t narrowest = -1;
    bool follows = false;
    for (const int32_t input : node.inputs) {
      if (input < 0 || graph.tensors[input].type != DataType::kFloat32) continue;
      follows = follows || is_float[input];
      if (!JoinsParts(node) || graph.tensors[input].is_constant()) continue;
      const float width = Width(ranges[input]);
      if (!(width > 0) || widest <= most * width) continue;
      if (narrowest < 0 || width < Width(ranges[narrowest])) narrowest = input;
    }
    if (narrowest < 0 && !follows) continue;
    if (narrowest >= 0) {
      const Range& narrow = ranges[narrowest];
      const Range& joint = ranges[node.outputs[0]];
      choice.reason = Format(
          "it joins parts of very different ranges: '%s' has %g to %g, all together %g to %g, and "
          "one scale would leave '%s' %d steps",
          graph.tensors[narrowest].name.c_str(), static_cast<double>(narrow.low),
          static_cast<double>(narrow.high), static_cast<double>(joint.low),
          static_cast<double>(joint.high), graph.tensors[narrowest].name.c_str(),
          static_cast<int>(static_cast<float>(choice.precision == Precision::kInt8 ? 255 : 65535) *
                           Width(narrow) / widest));
      sentences.push_back(
          Format("%s stays float: %s", Describe(graph, node).c_str(), choice.reason.c_str()));
    } else {
      choice.reason = "it hands on parts of very different ranges to an output";
    }
    choice.precision = Precision::kFloat;
    for (const int32_t output : node.outputs) is_float[output] = true;
  }
  return sentences;
}

Scheme::Scheme(const Graph& graph, std::vector<NodeChoice> choices, std::vector<Range> ranges)
    : choices_(std::move(choices)),
      ranges_(std::move(ranges)),
      parents_(graph.tensors.size()),
      classes_(graph.tensors.size()),
      readers_(ReaderCounts(graph)) {
  for (size_t t = 0; t < parents_.size(); ++t) {
    parents_[t] = static_cast<int32_t>(t);
    classes_[t].range = ranges_[t];
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (RuleOf(node.type, choices_[i].precision) == OpRule::kPrescribed &&
        choices_[i].precision != Precision::kFloat) {
      classes_[node.outputs[0]].prescribed = node.type;
    }
  }
  for (const int32_t input : graph.inputs) classes_[input].has_other_use = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (choices_[i].precision != Precision::kFloat &&
        RuleOf(graph.nodes[i].type, choices_[i].precision) == OpRule::kShared) {
      JoinInputs(graph, graph.nodes[i]);
    }
  }
}

int32_t Scheme::Find(int32_t tensor) const {
  while (parents_[tensor] != tensor) {
    parents_[tensor] = parents_[parents_[tensor]];
    tensor = parents_[tensor];
  }
  return tensor;
}

void Scheme::JoinInputs(const Graph& graph, const Node& node) {
  // Outputs of SPLIT and its like first: they have one encoding whatever the input's is.
  for (size_t k = 1; k < node.outputs.size(); ++k) Join(node.outputs[0], node.outputs[k]);
  // What reads the widest range first: others are then held to the joint one.
  std::vector<int32_t> inputs;
  for (const int32_t input : node.inputs) {
    if (input >= 0 && graph.tensors[input].type == DataType::kFloat32 &&
        !graph.tensors[input].is_constant()) {
      inputs.push_back(input);
    }
  }
  std::stable_sort(inputs.begin(), inputs.end(), [this](int32_t a, int32_t b) {
    return Width(classes_[Find(a)].range) > Width(classes_[Find(b)].range);
  });
  for (const int32_t input : inputs) {
    const int32_t from = Find(input), to = Find(node.outputs[0]);
    if (from == to) continue;
    Class part = classes_[from];
    // A part that nobody else reads loses nothing.
    part.has_other_use = part.has_other_use || readers_[input] > 1;
    if (MayJoin(part, classes_[to])) Join(from, to);
  }
}

bool Scheme::MayJoin(const Class& a, const Class& b) const {
  if (a.prescribed != OpType::kCUSTOM && b.prescribed != OpType::kCUSTOM) {
    return PrescribedEncoding(a.prescribed, Precision::kInt8) ==
           PrescribedEncoding(b.prescribed, Precision::kInt8);
  }
  for (const auto& [fixed, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (fixed->prescribed == OpType::kCUSTOM) continue;
    const Range range = RangeOfEncoding(PrescribedEncoding(fixed->prescribed, Precision::kInt8));
    return IsInside(other->range, range);
  }
  Range joint = a.range;
  joint.Include(b.range);
  return !a.has_other_use || Width(joint) <= kMaxWidening * Width(a.range);
}

void Scheme::Join(int32_t a, int32_t b) {
  const int32_t from = Find(a), to = Find(b);
  if (from == to) return;
  parents_[from] = to;
  Class& joint = classes_[to];
  const Class& part = classes_[from];
  joint.range.Include(part.range);
  joint.has_other_use = joint.has_other_use || part.has_other_use;
  if (joint.prescribed == OpType::kCUSTOM) joint.prescribed = part.prescribed;
}

Encoding Scheme::EncodingFor(int32_t tensor, Precision precision) const {
  if (precision == Precision::kFloat) return {};
  const Class& found = classes_[Find(tensor)];
  if (found.prescribed != OpType::kCUSTOM) return PrescribedEncoding(found.prescribed, precision);
  return EncodingOf(found.range, precision);
}

}  // namespace atollrt
