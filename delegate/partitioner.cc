// SPDX-License-Identifier: Apache-2.0
#include "delegate/partitioner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "delegate/lowering.h"
#include "driver/isa/executable.h"
#include "driver/isa/instruction.h"
#include "runtime/graph/compiled_op.h"
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

// How often each tensor is an input of a node.
std::vector<int32_t> ReadersOf(const Graph& graph) {
  std::vector<int32_t> readers(graph.tensors.size());
  for (const Node& node : graph.nodes) {
    for (const int32_t tensor : node.inputs) {
      if (tensor >= 0) ++readers[tensor];
    }
  }
  return readers;
}

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

template <typename Predicate>
bool All(const std::vector<const Tensor*>& tensors, const Predicate& holds) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor* t) { return holds(*t); });
}

bool HasByteActivations(const Candidate& c) {
  return All(c.activations(), [](const Tensor& t) { return IsByteType(t.type); }) &&
         IsByteType(c.output().type);
}

// Only QUANTIZE goes from one byte type to the other. The CPU refuses the rest with more words.
bool KeepsType(const Candidate& c) {
  return c.node.type == OpType::kQUANTIZE ||
         All(c.activations(), [&](const Tensor& t) { return t.type == c.output().type; });
}

bool HasElements(const Candidate& c) {
  const auto has_one = [](const Tensor& t) { return t.element_count() >= 1; };
  return All(c.activations(), has_one) && All(c.outputs(), has_one);
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
  return !All(c.activations(), [](const Tensor& t) { return t.is_constant(); });
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

// The largest of the numbers that a limit is about.
uint64_t LargestFor(OperandLimit limit, const Candidate& c) {
  // Of a window over `channels` channels.
  const auto of_window = [limit](const auto& window, uint64_t channels, uint64_t dilation_h,
                                 uint64_t dilation_w) {
    const auto size = [](int32_t number) -> uint64_t { return std::max(number, 0); };
    const uint64_t kernel_h = size(window.kernel_h), kernel_w = size(window.kernel_w);
    switch (limit) {
      case OperandLimit::kTaps:
        return SaturatingProduct({kernel_h, kernel_w, channels});
      case OperandLimit::kPad:
        return size(std::max(window.pad_top, window.pad_left));
      case OperandLimit::kReach:
        return std::max(
            WindowReach(size(window.output_h), size(window.stride_h), kernel_h, dilation_h),
            WindowReach(size(window.output_w), size(window.stride_w), kernel_w, dilation_w));
    }
    return uint64_t{0};
  };
  const Graph& graph = c.graph;
  if (HasState(c.node.type)) {
    const Shape& weights = c.input(1).shape;
    return limit == OperandLimit::kTaps ? std::max(weights[0], weights[1]) : 0;
  }
  if (IsFilter(c.node.type)) {
    const ConvShape shape = FilterShape(graph, c.node);
    const bool is_depthwise = c.node.type == OpType::kDEPTHWISE_CONV_2D;
    const uint64_t channels = is_depthwise ? 1 : shape.input_c / shape.groups;
    if (c.node.type == OpType::kTRANSPOSE_CONV && limit == OperandLimit::kReach) return 0;
    return of_window(shape, channels, shape.dilation_h, shape.dilation_w);
  }
  if (IsLoweredBy(c.node.type, LowerPool2D)) return of_window(PoolShape(graph, c.node), 1, 1, 1);
  return 0;
}

template <OperandLimit limit>
bool Keeps(const Candidate& c) {
  return IsWithin(limit, LargestFor(limit, c));
}

// Of an executable.
bool HasFewOperands(const Candidate& c) {
  static_assert(kMaxLayers == 1024);  // says the rule
  return c.node.inputs.size() + c.node.outputs.size() <= kMaxLayers;
}

// What of a node must be on chip at once, however it is computed.
std::vector<MemoryNeed> OnChipNeeds(const Candidate& c) {
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
      : supported_(supported), max_nodes_(max_nodes), sets_(graph.nodes.size()) {
    for (size_t i = 0; i < sets_.size(); ++i) {
      const int32_t node = static_cast<int32_t>(i);
      sets_[i] = {.parent = node, .first = node, .last = node, .members = {node}};
    }
    std::vector<int32_t> writer(graph.tensors.size(), -1);
    for (int32_t node = 0; node < static_cast<int32_t>(graph.nodes.size()); ++node) {
      for (const int32_t tensor : graph.nodes[node].inputs) {
        if (tensor < 0 || writer[tensor] < 0) continue;
        const Edge edge{writer[tensor], node};
        Connect(edge);
        const bool same_stage = stages.empty() || stages[edge.from] == stages[edge.to];
        if (supported_[edge.from] && supported_[edge.to] && same_stage) joints_.push_back(edge);
      }
      for (const int32_t tensor : graph.nodes[node].outputs) writer[tensor] = node;
    }
    // No edges to grow along, but paths that must not lead out of a set and back.
    for (const auto& [earlier, later] : StateOrder(graph)) Connect({earlier, later});
    ForgetSideways();
  }

  // Joins neighbouring supported sets as long as that is possible.
  void Grow() {
    for (bool changed = true; changed && !joints_.empty() && work_ < kWorkMax;) {
      changed = false;
      std::vector<Edge> apart;
      for (const Edge& joint : joints_) {
        const int32_t a = Find(joint.from);
        const int32_t b = Find(joint.to);
        if (a == b || sets_[a].members.size() + sets_[b].members.size() > max_nodes_) continue;
        if (HasPathThroughOthers(a, b)) {
          apart.push_back(joint);
          continue;
        }
        Join(a, b);
        changed = true;
      }
      joints_ = std::move(apart);
      is_first_round_ = false;
    }
  }

  std::vector<std::vector<int32_t>> Sets() {
    std::vector<std::vector<int32_t>> sets;
    for (size_t i = 0; i < sets_.size(); ++i) {
      if (!supported_[i] || Find(static_cast<int32_t>(i)) != static_cast<int32_t>(i)) continue;
      std::sort(sets_[i].members.begin(), sets_[i].members.end());
      sets.push_back(sets_[i].members);
    }
    std::sort(sets.begin(), sets.end());
    return sets;
  }

 private:
  // Neighbours that searches may look at, some nanoseconds each, until they become superficial: no
  // graph of a few thousand nodes gets there.
  static constexpr int64_t kWorkMax = 50'000'000;
  static constexpr int64_t kSuperficialWork = 64;

  struct Edge {
    int32_t from, to;
  };
  // By its root; of other nodes only `parent` counts.
  struct Set {
    int32_t parent = 0;
    int32_t first = 0, last = 0;  // of its members
    std::vector<int32_t> members = {};
    // Nodes of other sets, or what were such once.
    std::vector<int32_t> successors = {}, predecessors = {};
    int32_t reached_from = 0, reached_to = 0;  // the last search that did
    int32_t scan = 0;                          // the last scan of neighbours that met it
  };

  void Connect(const Edge& edge) {
    sets_[edge.from].successors.push_back(edge.to);
    sets_[edge.to].predecessors.push_back(edge.from);
  }

  // Leaves edges only where a path can go from a supported node to another one. Nodes come in
  // execution order.
  void ForgetSideways() {
    std::vector<bool> is_behind = supported_;  // a supported node, or is one
    std::vector<bool> is_before = supported_;
    for (size_t i = 0; i < sets_.size(); ++i) {
      for (const int32_t from : sets_[i].predecessors) {
        if (is_behind[from]) is_behind[i] = true;
      }
    }
    for (size_t i = sets_.size(); i-- > 0;) {
      for (const int32_t to : sets_[i].successors) {
        if (is_before[to]) is_before[i] = true;
      }
    }
    for (size_t i = 0; i < sets_.size(); ++i) {
      std::erase_if(sets_[i].successors,
                    [&](int32_t to) { return !is_behind[i] || !is_before[to]; });
      std::erase_if(sets_[i].predecessors,
                    [&](int32_t from) { return !is_behind[from] || !is_before[i]; });
    }
  }

  int32_t Find(int32_t node) {
    while (sets_[node].parent != node) {
      node = sets_[node].parent = sets_[sets_[node].parent].parent;
    }
    return node;
  }

  void Join(int32_t a, int32_t b) {
    if (sets_[a].members.size() < sets_[b].members.size()) std::swap(a, b);
    Set& into = sets_[a];
    Set& from = sets_[b];
    from.parent = a;
    into.first = std::min(into.first, from.first);
    into.last = std::max(into.last, from.last);
    const auto move = [](std::vector<int32_t>& more, std::vector<int32_t>& nodes) {
      if (nodes.size() < more.size()) nodes.swap(more);
      nodes.insert(nodes.end(), more.begin(), more.end());
      more = {};
    };
    move(from.members, into.members);
    move(from.successors, into.successors);
    move(from.predecessors, into.predecessors);
  }

  // The sets among the neighbours of one; forgets what is there twice or has become part of it.
  const std::vector<int32_t>& Neighbours(int32_t set, std::vector<int32_t> Set::*direction) {
    std::vector<int32_t>& neighbours = sets_[set].*direction;
    work_ += 1 + static_cast<int64_t>(neighbours.size());
    sets_[set].scan = ++scans_;
    size_t kept = 0;
    for (const int32_t node : neighbours) {
      const int32_t other = Find(node);
      if (std::exchange(sets_[other].scan, scans_) != scans_) neighbours[kept++] = other;
    }
    neighbours.resize(kept);
    return neighbours;
  }

  // One direction of a search for a path.
  struct Search {
    int32_t origin;
    int32_t target;
    std::vector<int32_t> Set::*direction;
    int32_t Set::*reached;        // by this search,
    int32_t Set::*reached_other;  // by the one that comes from the other end
    std::vector<int32_t>& pending;
    int64_t work = 0;
  };
  int64_t NextWork(const Search& search) const {
    return 1 + static_cast<int64_t>((sets_[search.pending.back()].*search.direction).size());
  }
  // Looks at the neighbours of one set; true if there is a path. What begins behind `last` leads
  // nowhere.
  bool Advance(Search* search, int32_t last) {
    search->work += NextWork(*search);
    const int32_t set = search->pending.back();
    search->pending.pop_back();
    for (const int32_t next : Neighbours(set, search->direction)) {
      if (next == search->target) {
        if (set != search->origin) return true;
        continue;
      }
      Set& to = sets_[next];
      if (to.first > last || std::exchange(to.*search->reached, searches_) == searches_) continue;
      if (to.*search->reached_other == searches_) return true;
      search->pending.push_back(next);
    }
    return false;
  }

  // Is there a path from one of the two sets, neighbours, through a third to the other? Both are
  // convex by themselves, so any such path runs from `a`, which has an edge to `b`, to `b`. It is
  // looked for from both ends, which is over as soon as one of them has no more to look at. Where
  // that takes too long, there may be one.
  bool HasPathThroughOthers(int32_t a, int32_t b) {
    ++searches_;
    const int64_t end_of_work =
        work_ < kWorkMax ? std::numeric_limits<int64_t>::max() : work_ + kSuperficialWork;
    // In the first round, `b` holds the last node that has been looked at, and all behind that are
    // by themselves.
    constexpr int32_t kNoEnd = std::numeric_limits<int32_t>::max();
    const int32_t last = is_first_round_ ? sets_[b].last : kNoEnd;
    from_a_.assign(1, a);
    to_b_.assign(1, b);
    Search forward{a, b, &Set::successors, &Set::reached_from, &Set::reached_to, from_a_};
    Search backward{b, a, &Set::predecessors, &Set::reached_to, &Set::reached_from, to_b_};
    while (!from_a_.empty() && !to_b_.empty()) {
      const bool goes_forward =
          forward.work + NextWork(forward) <= backward.work + NextWork(backward);
      Search& next = goes_forward ? forward : backward;
      if (work_ + NextWork(next) > end_of_work) return true;
      if (Advance(&next, goes_forward ? last : kNoEnd)) return true;
    }
    return false;
  }

  const std::vector<bool>& supported_;
  const size_t max_nodes_;
  std::vector<Set> sets_;
  std::vector<Edge> joints_;  // between supported nodes that may be in one set, but are not
  bool is_first_round_ = true;
  int64_t work_ = 0;
  int32_t searches_ = 0;
  int32_t scans_ = 0;
  std::vector<int32_t> from_a_, to_b_;  // still to be looked at, in a search
};

// Something in the set computes.
bool Computes(const Graph& graph, const std::vector<int32_t>& set) {
  return std::any_of(set.begin(), set.end(), [&](int32_t index) {
    return FindDeviceOp(graph.nodes[index].type)->effort == DeviceEffort::kComputes;
  });
}

}  // namespace

std::string DescribeNeeds(std::vector<MemoryNeed> needs) {
  constexpr size_t kShown = 4;
  int64_t bytes = 0;
  for (const MemoryNeed& need : needs) bytes += need.bytes;
  std::string list;
  for (size_t i = 0; i < std::min(needs.size(), kShown); ++i) {
    const auto next = needs.begin() + static_cast<std::ptrdiff_t>(i);
    const auto largest = std::max_element(
        next, needs.end(),
        [](const MemoryNeed& a, const MemoryNeed& b) { return a.bytes < b.bytes; });
    std::rotate(next, largest, largest + 1);
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
  const std::vector<int32_t> readers = ReadersOf(graph);
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

BoundaryFinder::BoundaryFinder(const Graph& graph)
    : graph_(graph), readers_(ReadersOf(graph)), places_(graph.tensors.size()) {
  for (const int32_t tensor : graph.outputs) ++readers_[tensor];
}

SetBoundary BoundaryFinder::Find(const std::vector<int32_t>& set) {
  SetBoundary boundary;
  for (const int32_t node : set) {
    for (const int32_t tensor : graph_.nodes[node].outputs) places_[tensor] = Place::kInside;
  }
  for (const int32_t node : set) {
    for (const int32_t tensor : graph_.nodes[node].inputs) {
      if (tensor < 0) continue;
      --readers_[tensor];  // those that are left are outside
      if (places_[tensor] != Place::kOutside) continue;
      // A list without elements (of no axes) is a constant without bytes.
      const Tensor& from = graph_.tensors[tensor];
      if (from.is_constant() || from.element_count() == 0) continue;
      places_[tensor] = Place::kInput;
      boundary.inputs.push_back(tensor);
      const bool has_state = HasState(graph_.nodes[node].type) || IsCompiledOp(graph_.nodes[node]);
      const bool is_state = has_state && from.is_variable;
      if (is_state) boundary.state.push_back(tensor);
    }
  }
  for (const int32_t node : set) {
    for (const int32_t tensor : graph_.nodes[node].outputs) {
      if (readers_[tensor] > 0) boundary.outputs.push_back(tensor);
    }
  }
  for (const int32_t node : set) {
    for (const int32_t tensor : graph_.nodes[node].outputs) places_[tensor] = Place::kOutside;
    for (const int32_t tensor : graph_.nodes[node].inputs) {
      if (tensor < 0) continue;
      places_[tensor] = Place::kOutside;
      ++readers_[tensor];
    }
  }
  return boundary;
}

}  // namespace atollrt
