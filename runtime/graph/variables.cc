// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/variables.h"

#include <algorithm>
#include <map>
#include <utility>

namespace atollrt {
namespace {

class Resolver {
 public:
  explicit Resolver(std::vector<Graph>* graphs) : graphs_(*graphs) {}

  Result<std::vector<Variable>> Resolve() {
    for (const Graph& graph : graphs_) {
      calls_.push_back(std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
        return node.type == OpType::kCALL_ONCE;
      }));
    }
    for (Graph& graph : graphs_) {
      ATOLL_RETURN_IF_ERROR(NumberHandles(&graph));
      for (const Node& node : graph.nodes) ATOLL_RETURN_IF_ERROR(CheckCall(graph, node));
    }
    assigned_.resize(variables_.size());
    called_.resize(graphs_.size());
    ATOLL_RETURN_IF_ERROR(CheckAssigned(graphs_[0]));
    return std::move(variables_);
  }

 private:
  Status NumberHandles(Graph* graph);
  Status UseVariable(const Graph& graph, const Node& node, int32_t variable);
  Status CheckCall(const Graph& graph, const Node& node) const;
  Status CheckAssigned(const Graph& graph);

  std::vector<Graph>& graphs_;
  std::map<std::pair<std::string, std::string>, int32_t> numbers_;
  std::vector<Variable> variables_;
  std::vector<bool> used_;      // type and shape are known
  std::vector<bool> assigned_;  // so far, in execution order
  std::vector<bool> calls_;     // per graph: another one
  std::vector<bool> called_;    // per graph: by the first one, so far
};

Status Resolver::NumberHandles(Graph* graph) {
  std::vector<int32_t> variable_of(graph->tensors.size(), -1);
  for (Node& node : graph->nodes) {
    if (auto* handle = std::get_if<VarHandleOptions>(&node.options)) {
      const int32_t next = static_cast<int32_t>(variables_.size());
      const auto [entry, is_new] =
          numbers_.insert({{handle->container, handle->shared_name}, next});
      if (is_new) {
        variables_.push_back({.name = handle->shared_name, .shape = {}});
        used_.push_back(false);
      }
      handle->variable = entry->second;
      variable_of[node.outputs[0]] = entry->second;
    }
    if (node.type != OpType::kREAD_VARIABLE && node.type != OpType::kASSIGN_VARIABLE) continue;
    const int32_t variable = variable_of[node.inputs[0]];
    if (variable < 0) {
      return Unsupported("%s: %s is not the output of a VAR_HANDLE", Describe(*graph, node).c_str(),
                         Describe(*graph, node.inputs[0]).c_str());
    }
    node.options = VariableOptions{variable};
    ATOLL_RETURN_IF_ERROR(UseVariable(*graph, node, variable));
  }
  return Status();
}

// The first use decides on type and shape.
Status Resolver::UseVariable(const Graph& graph, const Node& node, int32_t variable) {
  const int32_t index = node.type == OpType::kREAD_VARIABLE ? node.outputs[0] : node.inputs[1];
  const Tensor& tensor = graph.tensors[index];
  Variable& known = variables_[variable];
  if (!used_[variable]) {
    used_[variable] = true;
    known.type = tensor.type;
    known.shape = tensor.shape;
    return Status();
  }
  if (known.type == tensor.type && known.shape == tensor.shape) return Status();
  return Unsupported("%s: %s is %s of shape %s, but variable '%s' is %s of shape %s elsewhere",
                     Describe(graph, node).c_str(), Describe(graph, index).c_str(),
                     DataTypeName(tensor.type), ShapeString(tensor.shape).c_str(),
                     known.name.c_str(), DataTypeName(known.type),
                     ShapeString(known.shape).c_str());
}

Status Resolver::CheckCall(const Graph& graph, const Node& node) const {
  const auto* call = std::get_if<CallOnceOptions>(&node.options);
  if (call == nullptr) return Status();
  if (call->subgraph < 0 || static_cast<size_t>(call->subgraph) >= graphs_.size()) {
    return CorruptModel("%s: subgraph %d, but there are %zu", Describe(graph, node).c_str(),
                        call->subgraph, graphs_.size());
  }
  const Graph& callee = graphs_[call->subgraph];
  if (!callee.inputs.empty() || !callee.outputs.empty()) {
    return CorruptModel("%s: subgraph %d has %zu inputs and %zu outputs, must have none",
                        Describe(graph, node).c_str(), call->subgraph, callee.inputs.size(),
                        callee.outputs.size());
  }
  if (!calls_[call->subgraph]) return Status();
  return Unsupported("%s: subgraph %d calls another one", Describe(graph, node).c_str(),
                     call->subgraph);
}

Status Resolver::CheckAssigned(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (const auto* call = std::get_if<CallOnceOptions>(&node.options)) {
      // Once assigned, a variable stays so.
      if (called_[call->subgraph]) continue;
      called_[call->subgraph] = true;
      ATOLL_RETURN_IF_ERROR(CheckAssigned(graphs_[call->subgraph]));
    }
    const auto* options = std::get_if<VariableOptions>(&node.options);
    if (options == nullptr) continue;
    if (node.type == OpType::kASSIGN_VARIABLE) assigned_[options->variable] = true;
    if (!assigned_[options->variable]) {
      return CorruptModel("%s reads variable '%s' before anything has assigned it",
                          Describe(graph, node).c_str(),
                          variables_[options->variable].name.c_str());
    }
  }
  return Status();
}

}  // namespace

Result<std::vector<Variable>> ResolveVariables(std::vector<Graph>* graphs) {
  return Resolver(graphs).Resolve();
}

}  // namespace atollrt
