// SPDX-License-Identifier: Apache-2.0
#include "quantize/infinities.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <utility>

namespace atollrt {
namespace {

// Nothing smaller stands for infinity.
constexpr float kLeast = 1000.0f;
// How much smaller than the constants what was computed from them may be.
constexpr float kMargin = 16.0f;
// How many times larger than everything beside them they are at least.
float LeastRatio(Precision precision) { return precision == Precision::kInt16 ? 4096.0f : 256.0f; }

bool IsFloat(const Graph& graph, int32_t tensor) {
  return tensor >= 0 && graph.tensors[tensor].type == DataType::kFloat32;
}

// The inputs of a node whose constants may stand for infinity.
std::vector<int32_t> Candidates(const Graph& graph, const Node& node) {
  std::vector<int32_t> found;
  const auto add = [&](size_t position) {
    if (position >= node.inputs.size() || !IsFloat(graph, node.inputs[position])) return;
    if (graph.tensors[node.inputs[position]].is_constant()) found.push_back(node.inputs[position]);
  };
  switch (node.type) {
    case OpType::kPADV2:
      add(2);
      break;
    case OpType::kADD:
    case OpType::kSUB:
    case OpType::kMINIMUM:
    case OpType::kMAXIMUM:
      add(0);
      add(1);
      break;
    case OpType::kSELECT:
    case OpType::kSELECT_V2:
      add(1);
      add(2);
      break;
    default:
      break;
  }
  return found;
}

// Whether a node hands on values that stand for infinity as such.
bool HandsOn(const Node& node) {
  switch (node.type) {
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kRESIZE_BILINEAR:
      return false;
    case OpType::kADD:
    case OpType::kSUB:
    case OpType::kSELECT:
    case OpType::kSELECT_V2:
    case OpType::kRELU:
    case OpType::kRELU6:
    case OpType::kRELU_N1_TO_1:
      return true;
    default:
      return RuleOf(node.type, Precision::kInt8) == OpRule::kShared;
  }
}

float LargestOf(const Range& range) {
  return range.is_known() ? std::max(std::abs(range.low), std::abs(range.high)) : 0.0f;
}

Range RangeWithin(std::span<const float> values, float limit) {
  Range range;
  for (const float value : values) {
    if (std::abs(value) < limit) range.Include({value, value});
  }
  return range;
}

// What an input must reach for a function to be at its limit there, beside the rest of its range.
void WidenFor(const Node& reader, bool below, bool above, Range* range) {
  switch (reader.type) {
    case OpType::kSOFTMAX:
    case OpType::kLOG_SOFTMAX: {
      const auto* options = std::get_if<SoftmaxOptions>(&reader.options);
      const float beta = options == nullptr ? 1.0f : std::max(options->beta, 1e-3f);
      if (below) range->low = std::min(range->low, range->high - 10.0f / beta);
      break;
    }
    case OpType::kLOGISTIC:
    case OpType::kTANH:
    case OpType::kEXP:
      if (below) range->low = std::min(range->low, -8.0f);
      if (above && reader.type != OpType::kEXP) range->high = std::max(range->high, 8.0f);
      break;
    default:
      break;
  }
}

class Settler {
 public:
  Settler(const Graph& graph, Precision precision, FloatMeasures* measures)
      : graph_(graph),
        ratio_(LeastRatio(precision)),
        measures_(*measures),
        has_(graph.tensors.size(), false),
        below_(graph.tensors.size(), false),
        above_(graph.tensors.size(), false),
        readers_(graph.tensors.size()) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const int32_t input : graph.nodes[i].inputs) {
        if (input >= 0) readers_[input].push_back(i);
      }
    }
  }

  void Run() {
    for (const Node& node : graph_.nodes) Settle(node);
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) Widen(*node);
    for (const Node& node : graph_.nodes) HoldConstants(node);
    for (size_t t = 0; t < has_.size(); ++t) {
      if (!has_[t]) measures_.infinities[t] = INFINITY;
    }
  }

 private:
  // What the largest of a node's inputs is, apart from infinities.
  float LargestBeside(const Node& node, const std::vector<int32_t>& candidates) const {
    float largest = 0;
    for (const int32_t input : node.inputs) {
      if (!IsFloat(graph_, input)) continue;
      const bool is_candidate =
          std::find(candidates.begin(), candidates.end(), input) != candidates.end();
      largest = std::max(largest, is_candidate && std::isfinite(measures_.infinities[input])
                                      ? LargestOf(RangeWithin(Floats(graph_.tensors[input]),
                                                              measures_.infinities[input]))
                                      : LargestOf(measures_.ranges[input]));
    }
    return largest;
  }

  void Settle(const Node& node) {
    for (const int32_t output : node.outputs) {
      if (!IsFloat(graph_, output) || !std::isfinite(measures_.infinities[output])) continue;
      const std::vector<int32_t> candidates = Candidates(graph_, node);
      const float beside = LargestBeside(node, candidates);
      const float limit = measures_.infinities[output];
      bool has = false;
      for (const int32_t candidate : candidates) {
        if (measures_.infinities[candidate] * kMargin < ratio_ * beside) continue;
        if (!std::isfinite(measures_.infinities[candidate])) continue;
        has = has_[candidate] = true;
      }
      if (HandsOn(node)) {
        for (const int32_t input : node.inputs) {
          has = has || (IsFloat(graph_, input) && has_[input] && beside * kMargin < limit);
        }
      }
      if (!has) continue;
      const Range all = measures_.ranges[output];
      has_[output] = true;
      below_[output] = all.low <= -limit;
      above_[output] = all.high >= limit;
      measures_.ranges[output] = measures_.finite_ranges[output];
      if (!measures_.ranges[output].is_known()) measures_.ranges[output] = {0, 0};
    }
  }

  // What the readers of a tensor need, it and what it comes from must reach.
  void Widen(const Node& node) {
    for (const int32_t output : node.outputs) {
      if (!has_[output] || !HandsOn(node)) continue;
      Range& range = measures_.ranges[output];
      for (const size_t reader : readers_[output]) {
        WidenFor(graph_.nodes[reader], below_[output], above_[output], &range);
      }
      for (const int32_t input : node.inputs) {
        if (!IsFloat(graph_, input) || !has_[input] || graph_.tensors[input].is_constant()) {
          continue;
        }
        Range& from = measures_.ranges[input];
        const float beside =
            node.type == OpType::kADD || node.type == OpType::kSUB ? Beside(node, input) : 0.0f;
        if (below_[input]) from.low = std::min(from.low, range.low - beside);
        if (above_[input]) from.high = std::max(from.high, range.high + beside);
      }
    }
  }

  // The largest magnitude of the other inputs of a sum.
  float Beside(const Node& node, int32_t input) const {
    float largest = 0;
    for (const int32_t other : node.inputs) {
      if (other != input) largest = std::max(largest, LargestOf(measures_.ranges[other]));
    }
    return largest;
  }

  // Constants of sums have scales of their own: what is left of the infinities must take every sum
  // to the end of its range.
  void HoldConstants(const Node& node) {
    if ((node.type != OpType::kADD && node.type != OpType::kSUB) || !has_[node.outputs[0]]) return;
    const Range& sum = measures_.ranges[node.outputs[0]];
    for (const int32_t candidate : Candidates(graph_, node)) {
      if (!has_[candidate]) continue;
      const std::span<const float> values = Floats(graph_.tensors[candidate]);
      const float limit = measures_.infinities[candidate];
      Range& range = measures_.ranges[candidate];
      if (LargestOf(range) >= limit) range = RangeWithin(values, limit);
      const float reach = std::max(std::abs(sum.low), std::abs(sum.high)) + Beside(node, candidate);
      for (const float value : values) {
        if (value <= -limit) range.Include({-reach, -reach});
        if (value >= limit) range.Include({reach, reach});
      }
    }
  }

  const Graph& graph_;
  const float ratio_;
  FloatMeasures& measures_;
  std::vector<bool> has_, below_, above_;     // by tensor: infinities, of which sign
  std::vector<std::vector<size_t>> readers_;  // of each tensor
};

}  // namespace

float SmallestInfinity(const Node& node, std::span<const float> values) {
  std::vector<float> sizes;
  for (const float value : values) {
    if ((node.type == OpType::kMINIMUM && value < 0) ||
        (node.type == OpType::kMAXIMUM && value > 0)) {
      return INFINITY;  // it always holds
    }
    if (std::isnan(value)) return INFINITY;
    sizes.push_back(std::abs(value));
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  const bool is_sum = node.type == OpType::kADD || node.type == OpType::kSUB;
  for (size_t i = 0; i < sizes.size() && sizes[i] >= kLeast; ++i) {
    const bool is_last = i + 1 == sizes.size();
    // What moves all values is no mask.
    if (is_last) return is_sum ? INFINITY : sizes[i];
    if (sizes[i + 1] * LeastRatio(Precision::kInt8) <= sizes[i]) return sizes[i];
  }
  return INFINITY;
}

Status MakeInfinitiesFinite(EditedGraph* edited) {
  for (size_t i = 0; i < edited->graph.nodes.size(); ++i) {
    for (const int32_t candidate : Candidates(edited->graph, edited->graph.nodes[i])) {
      const Tensor stored = edited->graph.tensors[candidate];
      const std::span<const float> values = Floats(stored);
      if (std::none_of(values.begin(), values.end(), [](float v) { return std::isinf(v); })) {
        continue;
      }
      ATOLL_ASSIGN_OR_RETURN(const int32_t made, edited->NewFloats(stored.name, stored.shape));
      const std::span<float> finite = edited->OwnFloats(made);
      for (size_t k = 0; k < finite.size(); ++k) {
        finite[k] = std::isinf(values[k]) ? std::copysign(FLT_MAX, values[k]) : values[k];
      }
      for (int32_t& input : edited->graph.nodes[i].inputs) {
        if (input == candidate) input = made;
      }
    }
  }
  return Status();
}

std::vector<float> PossibleInfinities(const Graph& graph) {
  std::vector<float> limits(graph.tensors.size(), INFINITY);
  for (const Node& node : graph.nodes) {
    float limit = INFINITY;
    for (const int32_t candidate : Candidates(graph, node)) {
      const float smallest = SmallestInfinity(node, Floats(graph.tensors[candidate])) / kMargin;
      limits[candidate] = std::min(limits[candidate], smallest);
      limit = std::min(limit, smallest);
    }
    if (HandsOn(node)) {
      for (const int32_t input : node.inputs) {
        if (IsFloat(graph, input)) limit = std::min(limit, limits[input]);
      }
    }
    for (const int32_t output : node.outputs) limits[output] = limit;
  }
  return limits;
}

void SettleInfinities(const Graph& graph, Precision precision, FloatMeasures* measures) {
  Settler(graph, precision, measures).Run();
}

}  // namespace atollrt
