// SPDX-License-Identifier: Apache-2.0
#include "delegate/partitioner.h"

#include <algorithm>
#include <numeric>

#include "delegate/lowering.h"
#include "runtime/base/sort_few.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/ops/filter_tensors.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

bool IsFilter(OpType type) {
  return type == OpType::kCONV_2D || type == OpType::kDEPTHWISE_CONV_2D ||
         type == OpType::kFULLY_CONNECTED || type == OpType::kTRANSPOSE_CONV;
}

bool HasState(OpType type) { return type == OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM; }

// Operators whose lowering is `lower`.
bool IsLoweredBy(OpType type, decltype(DeviceOp::lower) lower) {
  const DeviceOp* op = FindDeviceOp(type);
  return op != nullptr && op->lower == lower;
}

bool IsReducer(OpType type) {
  return type == OpType::kMEAN || type == OpType::kSUM || type == OpType::kREDUCE_MAX ||
         type == OpType::kREDUCE_MIN;
}

// Which inputs of a node are activations, `count` from `first`; the others are parameters.
// Activations may be constants, which makes parameters of them.
struct ActivationRange {
  size_t first = 0, count = 1;
};
ActivationRange ActivationsOf(const Node& node) {
  if (node.type == OpType::kCONCATENATION || node.type == OpType::kPACK) {
    return {0, node.inputs.size()};
  }
  if (node.type == OpType::kSPLIT) return {1, 1};
  if (node.type == OpType::kTRANSPOSE_CONV) return {2, 1};
  return {0, IsLoweredBy(node.type, LowerPair) ? size_t{2} : size_t{1}};
}

// ---- Predicates of constraints.inc ------------------------------------------------------------

struct Candidate {
  const Graph& graph;
  const Node& node;
  const PartitionLimits& limits;
  const std::vector<int32_t>& readers;  // how often each tensor is an input of a node

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
  if (HasState(c.node.type)) {
    // Everything but the input and the state.
    for (size_t i = 1; i < c.node.inputs.size(); ++i) {
      const Tensor* tensor = c.graph.Input(c.node, i);
      if (tensor != nullptr && !tensor->is_variable && !tensor->is_constant()) return false;
    }
    return true;
  }
  if (!IsFilter(c.node.type)) return true;
  const FilterTensors t = FilterTensorsOf(c.graph, c.node);
  return t.weights.is_constant() && (t.bias == nullptr || t.bias->is_constant());
}

bool HasVariableActivation(const Candidate& c) {
  for (const Tensor* tensor : c.activations()) {
    if (!tensor->is_constant()) return true;
  }
  return false;
}

// The device changes the state where it lies. Whoever else reads it there, perhaps under another
// name, would have to do so in time.
bool OwnsItsState(const Candidate& c) {
  if (!HasState(c.node.type)) return true;
  for (const int32_t state : c.node.inputs) {
    if (state >= 0 && c.graph.tensors[state].is_variable && c.readers[state] != 1) return false;
  }
  return true;
}

bool BroadcastsInFewLoops(const Candidate& c) {
  if (!IsLoweredBy(c.node.type, LowerPair)) return true;
  return FitsPairLoops(MakeBroadcast(c.input(0).shape, c.input(1).shape));
}

bool ReducesInFewLoops(const Candidate& c) {
  if (!IsReducer(c.node.type)) return true;
  return IsReduction(MakeReducePlan(c.input(0).shape, ReducedAxes(c.graph, c.node)));
}

// A plan that cannot be made is the CPU's to refuse, with more words.
bool MovesByFewCopies(const Candidate& c) {
  if (!IsLoweredBy(c.node.type, LowerMove)) return true;
  const Result<MovePlan> plan = MakeMovePlan(c.graph, c.node);
  return plan.ok() && IsCopyProgram(*plan);
}

bool ConcatenatesWithoutActivation(const Candidate& c) {
  return c.node.type != OpType::kCONCATENATION ||
         std::get<AxisOptions>(c.node.options).activation == Activation::kNone;
}

// An element below the zero point has no root, which the CPU reports.
bool HasRoots(const Candidate& c) {
  return c.node.type != OpType::kRSQRT || c.input(0).zero_point() <= INT8_MIN;
}

bool HasShortSums(const Candidate& c) {
  constexpr int64_t kMaxSum = 65536;
  if (const auto* pool = std::get_if<Pool2DOptions>(&c.node.options)) {
    return int64_t{pool->filter_h} * pool->filter_w <= kMaxSum;
  }
  if (!IsFilter(c.node.type) && !HasState(c.node.type)) return true;
  const Shape& w = c.input(1).shape;
  if (c.node.type == OpType::kFULLY_CONNECTED) return w[1] <= kMaxSum;
  if (HasState(c.node.type)) return w[0] <= kMaxSum && w[1] <= kMaxSum;
  const int64_t taps = int64_t{w[1]} * w[2];
  return (c.node.type == OpType::kDEPTHWISE_CONV_2D ? taps : taps * w[3]) <= kMaxSum;
}

// What of a node must be on chip at once, however it is computed.
std::vector<MemoryNeed> OnChipNeeds(const Candidate& c) {
  constexpr int64_t kChannelRecordBytes = 16;
  std::vector<MemoryNeed> needs;
  const auto need = [&](const char* what, const Tensor& tensor) {
    needs.push_back({tensor.byte_size(), what + (" " + ShapeString(tensor.shape))});
  };
  // Images may be computed in bands of rows, which only the compiler can judge.
  for (const Tensor* tensor : c.activations()) {
    if (tensor->is_constant() || !IsImage(*tensor)) need("its input", *tensor);
  }
  for (const Tensor* tensor : c.outputs()) {
    if (!IsImage(*tensor)) need("its output", *tensor);
  }
  // The same goes for parts of the weights of CONV_2D and FULLY_CONNECTED.
  int64_t parameters = 0;
  if (c.node.type == OpType::kDEPTHWISE_CONV_2D) {
    parameters = c.input(1).byte_size() + c.output().shape.back() * kChannelRecordBytes;
  } else if (HasState(c.node.type)) {
    for (size_t i = 1; i < c.node.inputs.size(); ++i) {
      const Tensor* tensor = c.graph.Input(c.node, i);
      if (tensor != nullptr) parameters += tensor->byte_size();
    }
    parameters += 8 * c.output().shape.back() * kChannelRecordBytes;
  }
  if (parameters > 0) needs.push_back({parameters, "its parameters"});
  needs.push_back({4096, "tables and alignment"});
  return needs;
}

bool FitsOnChip(const Candidate& c) {
  int64_t bytes = 0;
  for (const MemoryNeed& need : OnChipNeeds(c)) bytes += need.bytes;
  return bytes <= c.limits.memory_bytes;
}

// The rest of the reason for a node that does not.
std::string OnChipNumbers(const Candidate& c) {
  return Format(": %s; the device has %lld. %s", DescribeNeeds(OnChipNeeds(c)).c_str(),
                static_cast<long long>(c.limits.memory_bytes), kMemoryAdvice);
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
  // Sets of at most `max_nodes`, of one of the stages.
  SetGraph(const Graph& graph, const std::vector<bool>& supported, size_t max_nodes,
           std::span<const int32_t> stages)
      : supported_(supported),
        max_nodes_(max_nodes),
        stages_(stages),
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
        if (!stages_.empty() && stages_[from] != stages_[to]) continue;
        const int32_t a = Find(from);
        const int32_t b = Find(to);
        if (a != b && members_[a].size() + members_[b].size() <= max_nodes_ &&
            !JoiningMakesCycle(a, b)) {
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
  const size_t max_nodes_;
  const std::span<const int32_t> stages_;
  std::vector<int32_t> parent_;
  std::vector<std::vector<int32_t>> members_;  // of each root
  std::vector<std::vector<int32_t>> successors_;
  std::vector<std::pair<int32_t, int32_t>> edges_;
  std::vector<int32_t> seen_;
  int32_t round_ = 0;
};

// Something in the set computes.
bool Computes(const Graph& graph, const std::vector<int32_t>& set) {
  return std::any_of(set.begin(), set.end(), [&](int32_t index) {
    return FindDeviceOp(graph.nodes[index].type)->effort == DeviceEffort::kComputes;
  });
}

}  // namespace

std::string DescribeNeeds(std::vector<MemoryNeed> needs) {
  SortFew(&needs, [](const MemoryNeed& a, const MemoryNeed& b) { return a.bytes > b.bytes; });
  int64_t bytes = 0;
  for (const MemoryNeed& need : needs) bytes += need.bytes;
  std::string list;
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(needs.size(), kShown); ++i) {
    list += Format("%s%lld for %s", i == 0 ? "" : ", ", static_cast<long long>(needs[i].bytes),
                   needs[i].what.c_str());
  }
  return Format("%lld bytes at once (%s%s)", static_cast<long long>(bytes), list.c_str(),
                needs.size() > kShown ? ", ..." : "");
}

NodeSets PartitionGraph(const Graph& graph, const PartitionLimits& limits,
                        const std::vector<std::string>& refused) {
  NodeSets result;
  result.reasons = refused;
  result.reasons.resize(graph.nodes.size());
  std::vector<int32_t> readers(graph.tensors.size());
  for (const Node& node : graph.nodes) {
    for (const int32_t tensor : node.inputs) {
      if (tensor >= 0) ++readers[tensor];
    }
  }
  std::vector<bool> supported(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Candidate candidate{graph, graph.nodes[i], limits, readers};
    for (const Constraint& constraint : kConstraints) {
      if (!result.reasons[i].empty()) break;
      if (constraint.holds(candidate)) continue;
      result.reasons[i] = constraint.sentence;
      if (constraint.holds == FitsOnChip) result.reasons[i] += OnChipNumbers(candidate);
    }
    supported[i] = result.reasons[i].empty();
  }
  SetGraph sets(graph, supported,
                limits.max_nodes > 0 ? static_cast<size_t>(limits.max_nodes) : SIZE_MAX,
                limits.stages);
  sets.Grow();
  result.sets = sets.Sets();
  if (limits.max_nodes > 0) return result;
  // A set that only moves bytes costs two trips over the link, which is no gain beside others.
  const auto computes = [&](const std::vector<int32_t>& set) { return Computes(graph, set); };
  if (std::none_of(result.sets.begin(), result.sets.end(), computes)) return result;
  for (const std::vector<int32_t>& set : result.sets) {
    if (computes(set)) continue;
    for (const int32_t node : set) {
      result.reasons[node] =
          "its partition must compute something, as others of the model do: moving the data would "
          "cost more than it saves";
    }
  }
  std::erase_if(result.sets, [&](const auto& set) { return !computes(set); });
  return result;
}

std::vector<int32_t> SetBoundary::OutputsAndState() const {
  std::vector<int32_t> tensors = outputs;
  tensors.insert(tensors.end(), state.begin(), state.end());
  return tensors;
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
      if (tensor < 0 || place[tensor] != kOutside) continue;
      // A list without elements (of no axes) is a constant without bytes.
      const Tensor& from = graph.tensors[tensor];
      if (from.is_constant() || from.element_count() == 0) continue;
      place[tensor] = kInput;
      boundary.inputs.push_back(tensor);
      const bool is_state = HasState(graph.nodes[node].type) && graph.tensors[tensor].is_variable;
      if (is_state) boundary.state.push_back(tensor);
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
