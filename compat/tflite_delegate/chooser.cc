// SPDX-License-Identifier: Apache-2.0
#include "compat/tflite_delegate/chooser.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace atollcompat {
namespace {

// Operators that call other subgraphs, or share variables with operators that may be elsewhere.
constexpr int32_t kNeverTaken[] = {
    51,             // another delegate's partition
    118, 119, 129,  // IF, WHILE, CALL_ONCE
    142, 143, 144,  // VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE
};

std::span<const int> SpanOf(const TfLiteIntArray* array) {
  if (array == nullptr || array->size <= 0) return {};
  return {array->data, static_cast<size_t>(array->size)};
}

class Chooser {
 public:
  Chooser(TfLiteContext* context, Device* device, const ChooserOptions& options)
      : context_(context), device_(device), options_(options) {}

  Choice Run();

 private:
  struct Node {
    GraphNode known;  // with arrays that are the runtime's own, and stay while it is asked
    std::span<const int> inputs;
    std::span<const int> outputs;
    bool is_candidate = false;
    bool is_needed = false;  // always taken
  };
  std::string WhyNot(const GraphNode& node) const;
  Partition Make(std::span<const int> nodes, std::span<const int> outputs, AtollDelegate* delegate,
                 int num_threads) const;
  bool ReadPlan(const TfLiteIntArray& plan);
  std::vector<int> Candidates() const;
  void Refuse(int node, const std::string& reason);
  void RefuseAll(std::span<const int> nodes, const std::string& reason);
  std::vector<int> LooseEnds(std::span<const int> nodes) const;
  void Place(std::span<const int> nodes, bool on_device);
  void ReadPlacement(std::span<const int> nodes, const Partition& placed);
  bool Preview(std::span<const int> nodes, std::vector<ChosenPartition>* partitions);
  void Settle(ChosenPartition* chosen);
  void RefuseReadersOf(std::span<const int> nodes, int tensor, const std::string& reason);
  bool IsUnknown(int tensor) const;
  void RefuseUnknown();
  void RefuseUnsafe(const ChosenPartition& chosen);

  TfLiteContext* const context_;
  Device* const device_;
  const ChooserOptions options_;
  Choice choice_;
  std::vector<int> plan_;
  std::unordered_map<int, Node> nodes_;
  std::unordered_map<int, int> reads_;  // how often nodes of the plan have a tensor as input
  std::unordered_set<int> made_;        // tensors that nodes of the plan write
  std::unordered_set<int> scalars_;     // those of them that are known to have no dimension
};

std::string Chooser::WhyNot(const GraphNode& node) const {
  if (options_.operators == Operators::kCompiled) return "it was not compiled";
  if (std::ranges::find(kNeverTaken, node.registration->builtin_code) != std::end(kNeverTaken)) {
    return "it concerns more than its partition";
  }
  return NodeProblem(context_, node);
}

// False if the runtime does not know a node of its own plan.
bool Chooser::ReadPlan(const TfLiteIntArray& plan) {
  plan_.assign(plan.data, plan.data + std::max(plan.size, 0));  // the array is the runtime's
  for (const int index : plan_) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context_->GetNodeAndRegistration(context_, index, &node, &registration) != kTfLiteOk ||
        node == nullptr || registration == nullptr) {
      return false;
    }
    Node& known = nodes_[index];
    known = {.known = {node, registration},
             .inputs = SpanOf(node->inputs),
             .outputs = SpanOf(node->outputs),
             .is_candidate = true,
             .is_needed = IsCompiledOperator(*registration)};
    if (!known.is_needed) {
      if (const std::string reason = WhyNot(known.known); !reason.empty()) Refuse(index, reason);
    }
    for (const int tensor : known.inputs) ++reads_[tensor];
    std::ranges::copy_if(known.outputs, std::inserter(made_, made_.end()), [this](int tensor) {
      return tensor >= 0 && static_cast<size_t>(tensor) < context_->tensors_size;
    });
  }
  return true;
}

Partition Chooser::Make(std::span<const int> nodes, std::span<const int> outputs,
                        AtollDelegate* delegate, int num_threads) const {
  std::vector<GraphNode> known;
  for (const int node : nodes) known.push_back(nodes_.at(node).known);
  return MakePartition(context_, known, outputs, device_, delegate, num_threads);
}

std::vector<int> Chooser::Candidates() const {
  std::vector<int> candidates;
  std::ranges::copy_if(plan_, std::back_inserter(candidates),
                       [&](int node) { return nodes_.at(node).is_candidate; });
  return candidates;
}

void Chooser::Refuse(int node, const std::string& reason) {
  if (nodes_.at(node).is_needed || !std::exchange(nodes_.at(node).is_candidate, false)) return;
  choice_.refusals.push_back({node, reason});
}

void Chooser::RefuseAll(std::span<const int> nodes, const std::string& reason) {
  for (const int node : nodes) Refuse(node, reason);
}

// What others read of these nodes' outputs, and what nobody reads.
std::vector<int> Chooser::LooseEnds(std::span<const int> nodes) const {
  std::unordered_map<int, int> reads;
  for (const int node : nodes) {
    for (const int tensor : nodes_.at(node).inputs) ++reads[tensor];
  }
  std::vector<int> ends;
  for (const int node : nodes) {
    for (const int tensor : nodes_.at(node).outputs) {
      const auto inside = reads.find(tensor);
      if (inside == reads.end() || inside->second < reads_.at(tensor)) ends.push_back(tensor);
    }
  }
  return ends;
}

// Refuses the nodes that Atoll does not compute; with `on_device`, that stay on the CPU.
void Chooser::Place(std::span<const int> nodes, bool on_device) {
  if (nodes.empty() || !choice_.error.empty()) return;
  const Partition placed =
      Make(nodes, LooseEnds(nodes), on_device ? device_->handle() : nullptr, /*num_threads=*/1);
  if (placed.is_lost) {
    choice_.error = placed.error;
  } else if (placed.error.empty()) {
    if (on_device) ReadPlacement(nodes, placed);
  } else if (nodes.size() == 1) {
    Refuse(nodes[0], placed.error);
  } else {
    const size_t half = nodes.size() / 2;
    Place(nodes.first(half), on_device);
    Place(nodes.subspan(half), on_device);
  }
}

void Chooser::ReadPlacement(std::span<const int> nodes, const Partition& placed) {
  // By the tensors that they write: nodes that have become constants have no number any more.
  std::unordered_map<int, AtollNodeInfo> infos;
  AtollInterpreter* const interpreter = placed.interpreter.get();
  for (int32_t i = 0; i < AtollInterpreterGetNodeCount(interpreter); ++i) {
    AtollNodeInfo info = {};
    if (AtollInterpreterGetNodeInfo(interpreter, i, &info) != ATOLL_OK) continue;
    for (int32_t output = 0; output < info.output_count; ++output) {
      // Others are inside what came compiled.
      const auto tensor = static_cast<size_t>(info.outputs[output]);
      if (tensor >= placed.written.tensors.size()) continue;
      infos[placed.written.tensors[tensor]] = info;
      const AtollTensor* const made = AtollInterpreterGetTensor(interpreter, info.outputs[output]);
      if (AtollTensorNumDims(made) == 0) scalars_.insert(placed.written.tensors[tensor]);
    }
  }
  std::unordered_set<int> read_on_device;
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes_.at(nodes[i]);
    const auto info = infos.find(node.outputs[0]);
    const bool is_constant = info == infos.end();
    const bool taken =
        is_constant
            ? std::ranges::any_of(node.outputs, [&](int t) { return read_on_device.contains(t); })
            : info->second.partition >= 0;
    if (taken) {
      read_on_device.insert(node.inputs.begin(), node.inputs.end());
    } else {
      Refuse(nodes[i], is_constant ? "it is a constant" : info->second.reason);
    }
  }
}

// The partitions that the runtime will make of nodes; false if it does not say.
bool Chooser::Preview(std::span<const int> nodes, std::vector<ChosenPartition>* partitions) {
  TfLiteDelegateParams* params = nullptr;
  int count = 0;
  const std::vector<int> asked = AsArray(nodes);
  if (context_->PreviewDelegatePartitioning(context_,
                                            reinterpret_cast<const TfLiteIntArray*>(asked.data()),
                                            &params, &count) != kTfLiteOk) {
    return false;
  }
  if (params == nullptr && count > 0) return false;
  for (int i = 0; i < count; ++i) {
    const std::span<const int> members = SpanOf(params[i].nodes_to_replace);
    if (!std::ranges::all_of(members, [this](int node) { return nodes_.contains(node); })) {
      return false;
    }
    const std::span<const int> outputs = SpanOf(params[i].output_tensors);
    partitions->push_back(
        {{members.begin(), members.end()}, {outputs.begin(), outputs.end()}, Partition()});
  }
  return true;
}

void Chooser::RefuseReadersOf(std::span<const int> nodes, int tensor, const std::string& reason) {
  for (const int node : nodes) {
    if (std::ranges::find(nodes_.at(node).inputs, tensor) != nodes_.at(node).inputs.end()) {
      Refuse(node, reason);
    }
  }
}

// Files need not have the shapes of tensors between operators: those look like scalars until the
// runtime has prepared what writes them. That is too late for what reads them elsewhere.
bool Chooser::IsUnknown(int tensor) const {
  if (!made_.contains(tensor) || scalars_.contains(tensor)) return false;
  const TfLiteIntArray* const dims = context_->tensors[tensor].dims;
  return dims == nullptr || dims->size == 0;
}

void Chooser::RefuseUnknown() {
  std::unordered_set<int> unknown;
  for (const int index : plan_) {
    const Node& node = nodes_.at(index);
    if (node.is_candidate &&
        std::ranges::any_of(node.inputs, [&](int tensor) { return unknown.contains(tensor); })) {
      Refuse(index, "the shape of its input is not known yet");
    }
    if (node.is_candidate) continue;
    std::ranges::copy_if(node.outputs, std::inserter(unknown, unknown.end()),
                         [this](int tensor) { return IsUnknown(tensor); });
  }
}

// What would go wrong only when the runtime has replaced the nodes.
void Chooser::RefuseUnsafe(const ChosenPartition& chosen) {
  const WrittenModel& written = chosen.partition.written;
  for (const int tensor : written.inputs) {
    if (IsUnknown(tensor)) {
      RefuseReadersOf(chosen.nodes, tensor, "the shape of its input is not known yet");
    }
  }
  for (const int tensor : written.variables) {
    int reads = 0;
    for (const int node : chosen.nodes) {
      const std::span<const int> inputs = nodes_.at(node).inputs;
      reads += static_cast<int>(std::ranges::count(inputs, tensor));
    }
    if (reads < reads_[tensor]) {
      RefuseReadersOf(chosen.nodes, tensor, "it shares a variable with operators elsewhere");
    }
  }
}

// Makes the interpreter of a partition, or refuses nodes of it.
void Chooser::Settle(ChosenPartition* chosen) {
  const std::vector<int>& nodes = chosen->nodes;
  const bool is_needed =
      std::ranges::any_of(nodes, [&](int node) { return nodes_.at(node).is_needed; });
  if (static_cast<int>(nodes.size()) < options_.min_nodes && !is_needed) {
    return RefuseAll(nodes, "its partition has fewer operators than min_nodes");
  }
  // Made before nodes of other partitions were refused.
  const auto known = std::ranges::find_if(choice_.partitions, [&](const ChosenPartition& other) {
    return other.nodes == nodes && other.outputs == chosen->outputs;
  });
  if (known != choice_.partitions.end()) {
    chosen->partition = std::move(known->partition);
    return;
  }
  chosen->partition = Make(nodes, chosen->outputs, device_->handle(), options_.num_threads);
  if (chosen->partition.is_lost) {
    choice_.error = chosen->partition.error;
  } else if (chosen->partition.error.empty()) {
    RefuseUnsafe(*chosen);
  } else {
    const size_t before = choice_.refusals.size();
    if (nodes.size() > 1) {
      const size_t half = nodes.size() / 2;
      Place(std::span(nodes).first(half), /*on_device=*/false);
      Place(std::span(nodes).subspan(half), /*on_device=*/false);
    }
    if (choice_.refusals.size() == before) RefuseAll(nodes, chosen->partition.error);
  }
}

Choice Chooser::Run() {
  TfLiteIntArray* plan = nullptr;
  if (context_->GetExecutionPlan(context_, &plan) != kTfLiteOk || plan == nullptr ||
      !ReadPlan(*plan)) {
    choice_.error = "the runtime does not tell its execution plan";
    return std::move(choice_);
  }
  if (options_.operators == Operators::kDevice) Place(Candidates(), /*on_device=*/true);
  while (choice_.error.empty()) {
    RefuseUnknown();
    choice_.nodes = Candidates();
    std::vector<ChosenPartition> partitions;
    if (!choice_.nodes.empty() && !Preview(choice_.nodes, &partitions)) {
      choice_.error = "the runtime does not tell how it would partition its graph";
      break;
    }
    const size_t refused = choice_.refusals.size();
    for (ChosenPartition& chosen : partitions) {
      if (choice_.error.empty()) Settle(&chosen);
    }
    choice_.partitions = std::move(partitions);
    if (choice_.refusals.size() == refused) break;
    std::erase_if(choice_.partitions, [](const ChosenPartition& chosen) {
      return chosen.partition.interpreter == nullptr;
    });
  }
  return std::move(choice_);
}

}  // namespace

Choice Choose(TfLiteContext* context, Device* device, const ChooserOptions& options) {
  return Chooser(context, device, options).Run();
}

}  // namespace atollcompat
