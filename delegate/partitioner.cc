// SPDX-License-Identifier: Apache-2.0
#include "delegate/partitioner.h"

#include <algorithm>
#include <numeric>

#include "delegate/lowering.h"
#include "runtime/graph/shape_inference.h"
#include "runtime/ops/cpu_ops.h"

namespace atollrt {
namespace {

bool IsFilter(OpType type) {
  return type == OpType::kCONV_2D || type == OpType::kDEPTHWISE_CONV_2D ||
         type == OpType::kFULLY_CONNECTED;
}

bool IsAdd(OpType type) { return type == OpType::kADD || type == OpType::kSUB; }

// Which inputs of a node are activations, `count` from `first`; the others are parameters.
struct ActivationRange {
  size_t first = 0, count = 1;
};
ActivationRange ActivationsOf(const Node& node) {
  if (node.type == OpType::kCONCATENATION || node.type == OpType::kPACK) {
    return {0, node.inputs.size()};
  }
  if (node.type == OpType::kSPLIT) return {1, 1};
  return {0, IsAdd(node.type) ? size_t{2} : size_t{1}};
}

// ---- Predicates of constraints.inc ------------------------------------------------------------

struct Candidate {
  const Graph& graph;
  const Node& node;
  const PartitionLimits& limits;

  const Tensor& input(size_t position) const { return *graph.Input(node, position); }
  const Tensor& output() const { return graph.Output(node); }

  std::vector<const Tensor*> activations() const {
    const ActivationRange range = ActivationsOf(node);
    std::vector<const Tensor*> tensors;
    for (size_t i = 0; i < range.count; ++i) tensors.push_back(&input(range.first + i));
    return tensors;
  }
  std::vector<const Tensor*> outputs() const {
    std::vector<const Tensor*> tensors;
    for (size_t i = 0; i < node.outputs.size(); ++i) tensors.push_back(&graph.Output(node, i));
    return tensors;
  }
};

bool HasInstruction(const Candidate& c) { return FindDeviceOp(c.node.type) != nullptr; }

bool HasKnownVersion(const Candidate& c) {
  return c.node.version <= NewestKnownVersion(c.node.type);
}

bool HasByteActivations(const Candidate& c) {
  for (const Tensor* tensor : c.activations()) {
    if (!IsByteType(tensor->type)) return false;
  }
  return IsByteType(c.output().type);
}

// Only QUANTIZE goes from one byte type to the other. The CPU refuses the rest with more words.
bool KeepsType(const Candidate& c) {
  if (c.node.type == OpType::kQUANTIZE) return true;
  for (const Tensor* tensor : c.activations()) {
    if (tensor->type != c.output().type) return false;
  }
  return true;
}

bool HasElements(const Candidate& c) {
  for (const Tensor* tensor : c.activations()) {
    if (tensor->element_count() < 1) return false;
  }
  for (const Tensor* tensor : c.outputs()) {
    if (tensor->element_count() < 1) return false;
  }
  return true;
}

bool HasConstantParameters(const Candidate& c) {
  if (!IsFilter(c.node.type)) return true;
  const Tensor* bias = c.graph.Input(c.node, 2);
  return c.input(1).is_constant() && (bias == nullptr || bias->is_constant());
}

bool HasVariableActivations(const Candidate& c) {
  for (const Tensor* tensor : c.activations()) {
    if (tensor->is_constant()) return false;
  }
  return true;
}

bool AddsEqualShapes(const Candidate& c) {
  return !IsAdd(c.node.type) || c.input(0).shape == c.input(1).shape;
}

bool ReducesNeighbouringAxes(const Candidate& c) {
  if (c.node.type != OpType::kMEAN) return true;
  std::vector<int32_t> axes;
  for (const int64_t axis : ConstantIntegers(c.input(1))) {
    axes.push_back(NormalizeAxis(axis, c.input(0).shape.size()));
  }
  std::sort(axes.begin(), axes.end());
  for (size_t i = 1; i < axes.size(); ++i) {
    if (axes[i] - axes[i - 1] > 1) return false;
  }
  return true;
}

// A plan that cannot be made is the CPU's to refuse, with more words.
bool MovesByShortCopies(const Candidate& c) {
  if (FindDeviceOp(c.node.type)->lower != LowerMove) return true;
  const Result<MovePlan> plan = MakeMovePlan(c.graph, c.node);
  return plan.ok() && IsCopyProgram(*plan);
}

bool ConcatenatesAlikeQuantized(const Candidate& c) {
  if (c.node.type != OpType::kCONCATENATION) return true;
  if (std::get<AxisOptions>(c.node.options).activation != Activation::kNone) {
    return false;
  }
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    if (c.input(i).scale() != c.output().scale() ||
        c.input(i).zero_point() != c.output().zero_point()) {
      return false;
    }
  }
  return true;
}

bool HasShortSums(const Candidate& c) {
  constexpr int64_t kMaxSum = 65536;
  if (const auto* pool = std::get_if<Pool2DOptions>(&c.node.options)) {
    return int64_t{pool->filter_h} * pool->filter_w <= kMaxSum;
  }
  if (!IsFilter(c.node.type)) return true;
  const Shape& w = c.input(1).shape;
  if (c.node.type == OpType::kFULLY_CONNECTED) return w[1] <= kMaxSum;
  const int64_t taps = int64_t{w[1]} * w[2];
  return (c.node.type == OpType::kCONV_2D ? taps * w[3] : taps) <= kMaxSum;
}

bool FitsOnChip(const Candidate& c) {
  constexpr int64_t kChannelRecordBytes = 16;
  int64_t bytes = 0;
  // Images may be computed in bands of rows, which only the compiler can judge.
  std::vector<const Tensor*> tensors = c.activations();
  for (const Tensor* tensor : c.outputs()) tensors.push_back(tensor);
  if (!std::all_of(tensors.begin(), tensors.end(), [](auto* tensor) { return IsImage(*tensor); })) {
    for (const Tensor* tensor : tensors) bytes += tensor->byte_size();
  }
  if (IsFilter(c.node.type)) {
    bytes += c.input(1).byte_size() + c.output().shape.back() * kChannelRecordBytes;
  }
  // Room for alignment and tables.
  constexpr int64_t kSlack = 4096;
  return bytes + kSlack <= c.limits.memory_bytes;
}

struct Constraint {
  bool (*holds)(const Candidate& candidate);
  const char* sentence;
};

constexpr Constraint kConstraints[] = {
#define ATOLL_CONSTRAINT(predicate, sentence) {predicate, sentence},
#include "delegate/constraints.inc"
#undef ATOLL_CONSTRAINT
};

// ---- Growing sets -----------------------------------------------------------------------------

// Disjoint sets of nodes, and the graph that they contract to.
class SetGraph {
 public:
  SetGraph(const Graph& graph, const std::vector<bool>& supported)
      : supported_(supported),
        parent_(graph.nodes.size()),
        members_(graph.nodes.size()),
        successors_(graph.nodes.size()),
        seen_(graph.nodes.size(), 0) {
    std::iota(parent_.begin(), parent_.end(), 0);
    std::vector<int32_t> writer(graph.tensors.size(), -1);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const int32_t node = static_cast<int32_t>(i);
      members_[i] = {node};
      for (const int32_t tensor : graph.nodes[i].inputs) {
        if (tensor >= 0 && writer[tensor] >= 0) {
          successors_[writer[tensor]].push_back(node);
          edges_.push_back({writer[tensor], node});
        }
      }
      for (const int32_t tensor : graph.nodes[i].outputs) writer[tensor] = node;
    }
    // No edges to grow along, but paths that must not lead out of a set and back.
    for (const auto& [earlier, later] : StateOrder(graph)) successors_[earlier].push_back(later);
  }

  // Joins neighbouring supported sets as long as that is possible.
  void Grow() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [from, to] : edges_) {
        if (!supported_[from] || !supported_[to]) continue;
        const int32_t a = Find(from);
        const int32_t b = Find(to);
        if (a != b && !JoiningMakesCycle(a, b)) {
          Join(a, b);
          changed = true;
        }
      }
    }
  }

  std::vector<std::vector<int32_t>> Sets() {
    std::vector<std::vector<int32_t>> sets;
    for (size_t i = 0; i < parent_.size(); ++i) {
      const int32_t node = static_cast<int32_t>(i);
      if (!supported_[i] || Find(node) != node) continue;
      std::sort(members_[i].begin(), members_[i].end());
      sets.push_back(members_[i]);
    }
    std::sort(sets.begin(), sets.end());
    return sets;
  }

 private:
  int32_t Find(int32_t node) {
    while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
    return node;
  }

  void Join(int32_t a, int32_t b) {
    if (members_[a].size() < members_[b].size()) std::swap(a, b);
    parent_[b] = a;
    members_[a].insert(members_[a].end(), members_[b].begin(), members_[b].end());
    members_[b].clear();
  }

  // Is there a path from one of the two sets through a third to one of them? Both are convex by
  // themselves, so any such path runs from `a` to `b` or back. Nodes come in execution order,
  // which bounds the search: a set beyond the last member of both leads nowhere.
  bool JoiningMakesCycle(int32_t a, int32_t b) {
    const int32_t last = std::max(*std::max_element(members_[a].begin(), members_[a].end()),
                                  *std::max_element(members_[b].begin(), members_[b].end()));
    ++round_;
    std::vector<int32_t> pending;
    const auto visit_successors = [&](int32_t set, bool is_start) {
      for (const int32_t node : members_[set]) {
        for (const int32_t next : successors_[node]) {
          const int32_t target = Find(next);
          if (target == a || target == b) {
            if (!is_start) return true;
            continue;
          }
          const int32_t first = *std::min_element(members_[target].begin(), members_[target].end());
          if (first > last || seen_[target] == round_) continue;
          seen_[target] = round_;
          pending.push_back(target);
        }
      }
      return false;
    };
    visit_successors(a, true);
    visit_successors(b, true);
    while (!pending.empty()) {
      const int32_t set = pending.back();
      pending.pop_back();
      if (visit_successors(set, false)) return true;
    }
    return false;
  }

  const std::vector<bool>& supported_;
  std::vector<int32_t> parent_;
  std::vector<std::vector<int32_t>> members_;  // of each root
  std::vector<std::vector<int32_t>> successors_;
  std::vector<std::pair<int32_t, int32_t>> edges_;
  std::vector<int32_t> seen_;
  int32_t round_ = 0;
};

// Something in the set computes; one that only moves bytes costs two trips over the link.
bool Computes(const Graph& graph, const std::vector<int32_t>& set) {
  return std::any_of(set.begin(), set.end(), [&](int32_t index) {
    return FindDeviceOp(graph.nodes[index].type)->effort == DeviceEffort::kComputes;
  });
}

}  // namespace

NodeSets PartitionGraph(const Graph& graph, const PartitionLimits& limits,
                        const std::vector<std::string>& refused) {
  NodeSets result;
  result.reasons = refused;
  result.reasons.resize(graph.nodes.size());
  std::vector<bool> supported(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Candidate candidate{graph, graph.nodes[i], limits};
    for (const Constraint& constraint : kConstraints) {
      if (!result.reasons[i].empty()) break;
      if (!constraint.holds(candidate)) result.reasons[i] = constraint.sentence;
    }
    supported[i] = result.reasons[i].empty();
  }
  SetGraph sets(graph, supported);
  sets.Grow();
  for (std::vector<int32_t>& set : sets.Sets()) {
    if (Computes(graph, set)) {
      result.sets.push_back(std::move(set));
      continue;
    }
    for (const int32_t node : set) {
      result.reasons[node] =
          "its partition must compute something: moving the data would cost more than it saves";
    }
  }
  return result;
}

SetBoundary FindBoundary(const Graph& graph, const std::vector<int32_t>& set) {
  enum Place : uint8_t { kOutside, kInside, kInput, kOutput };
  std::vector<Place> place(graph.tensors.size(), kOutside);
  SetBoundary boundary;
  for (const int32_t node : set) {
    for (const int32_t tensor : graph.nodes[node].outputs) place[tensor] = kInside;
  }
  for (const int32_t node : set) {
    for (const int32_t tensor : graph.nodes[node].inputs) {
      // Lists without elements (no axes, the shape of a scalar) have no bytes to tell that they are
      // constants.
      if (tensor < 0 || place[tensor] != kOutside || graph.tensors[tensor].is_constant() ||
          graph.tensors[tensor].element_count() == 0) {
        continue;
      }
      place[tensor] = kInput;
      boundary.inputs.push_back(tensor);
    }
  }
  const auto read_outside = [&](int32_t tensor) {
    if (place[tensor] == kInside) place[tensor] = kOutput;
  };
  std::vector<bool> in_set(graph.nodes.size());
  for (const int32_t node : set) in_set[node] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (in_set[i]) continue;
    for (const int32_t tensor : graph.nodes[i].inputs) {
      if (tensor >= 0) read_outside(tensor);
    }
  }
  for (const int32_t tensor : graph.outputs) read_outside(tensor);
  for (const int32_t node : set) {
    for (const int32_t tensor : graph.nodes[node].outputs) {
      if (place[tensor] == kOutput) boundary.outputs.push_back(tensor);
    }
  }
  return boundary;
}

}  // namespace atollrt
