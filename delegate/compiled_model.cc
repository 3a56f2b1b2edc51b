// SPDX-License-Identifier: Apache-2.0
#include "delegate/compiled_model.h"

#include <map>

#include "runtime/graph/compiled_op.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/plan/step_plan.h"
#include "runtime/tflite/tflite_writer.h"

namespace atollrt {
namespace {

// A graph of some nodes of another one, with the tensors that they use.
class Extract {
 public:
  Extract(const Graph& from, std::string name) : from_(from) { graph_.name = std::move(name); }

  // `packed_weights`, of input 1, are borrowed.
  void Add(Node node, std::span<const uint8_t> packed_weights = {}) {
    Renumber(&node.inputs);
    Renumber(&node.outputs);
    Renumber(&node.intermediates);
    node.compiled = -1;
    if (!packed_weights.empty()) graph_.tensors[node.inputs[1]].packed_weights = packed_weights;
    graph_.nodes.push_back(std::move(node));
  }
  // -1: not in the new graph.
  int32_t NumberOf(int32_t tensor) const {
    const auto entry = number_.find(tensor);
    return entry == number_.end() ? -1 : entry->second;
  }
  Graph Finish(std::vector<int32_t> inputs, std::vector<int32_t> outputs) {
    Renumber(&inputs);
    Renumber(&outputs);
    graph_.inputs = std::move(inputs);
    graph_.outputs = std::move(outputs);
    return std::move(graph_);
  }

 private:
  void Renumber(std::vector<int32_t>* tensors) {
    for (int32_t& tensor : *tensors) {
      if (tensor < 0) continue;
      const int32_t next = static_cast<int32_t>(graph_.tensors.size());
      const auto [entry, is_new] = number_.emplace(tensor, next);
      if (is_new) {
        graph_.tensors.push_back(from_.tensors[tensor]);
        graph_.tensors.back().packed_weights = {};  // of another compilation
      }
      tensor = entry->second;
    }
  }

  const Graph& from_;
  std::map<int32_t, int32_t> number_;  // of tensors, in the new graph
  Graph graph_;
};

}  // namespace

Result<std::vector<uint8_t>> WriteCompiledModel(std::span<const Graph> graphs,
                                                const ModelExtras& extras,
                                                const std::vector<PartitionExecutable>& partitions,
                                                CpuFeatures features) {
  const Graph& graph = graphs[0];
  // Nodes and partitions in the order in which they run.
  std::vector<StepNodes> steps;
  std::vector<bool> in_partition(graph.nodes.size());
  for (const PartitionExecutable& partition : partitions) {
    steps.push_back({partition.nodes, partition.boundary.inputs, partition.boundary.outputs});
    for (const int32_t node : partition.nodes) in_partition[node] = true;
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (in_partition[i]) continue;
    const Node& node = graph.nodes[i];
    steps.push_back({{static_cast<int32_t>(i)}, node.inputs, node.outputs});
  }
  ATOLL_ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderSteps(graph, steps));

  std::vector<Graph> parts;
  std::vector<std::vector<uint8_t>> options(partitions.size());
  std::vector<std::vector<uint8_t>> packed(graph.nodes.size());
  // What lies packed in the file saves the first inference time. Tensors may share their bytes; the
  // file need not have all of them, once for each.
  constexpr int64_t kMostOfByte = 16, kMostOfSmallModel = int64_t{1} << 20;
  int64_t room = kMostOfByte * ConstantBytes(graph) + kMostOfSmallModel;
  std::vector<bool> is_packed(graph.tensors.size());
  Extract main(graph, graph.name);
  for (const size_t step : order) {
    if (step >= partitions.size()) {
      const int32_t number = steps[step].nodes[0];
      const Node& node = graph.nodes[number];
      if (room > 0 && node.inputs.size() > 1 && node.inputs[1] >= 0 && !is_packed[node.inputs[1]]) {
        packed[number] = PackWeights(graph, node, features);
        is_packed[node.inputs[1]] = !packed[number].empty();
        room -= static_cast<int64_t>(packed[number].size());
      }
      main.Add(node, packed[number]);
      continue;
    }
    const PartitionExecutable& partition = partitions[step];
    Extract part(graph, Format("%s partition %zu", graph.name.c_str(), parts.size()));
    for (const int32_t node : partition.nodes) part.Add(graph.nodes[node]);
    parts.push_back(part.Finish(partition.boundary.inputs, partition.boundary.outputs));
    const std::vector<uint8_t> executable = WriteExecutable(*partition.executable);
    options[step] =
        EncodeCompiledOp({.subgraph = static_cast<int32_t>(graphs.size() + parts.size()) - 1,
                          .executable = executable});
    Node stand_in;
    stand_in.type = OpType::kCUSTOM;
    stand_in.custom_name = kCompiledOpName;
    stand_in.inputs = partition.boundary.inputs;
    stand_in.outputs = partition.boundary.outputs;
    stand_in.custom_options = options[step];
    main.Add(std::move(stand_in));
  }
  const Graph first = main.Finish(graph.inputs, graph.outputs);
  std::vector<const Graph*> all = {&first};
  for (const Graph& other : graphs.subspan(1)) all.push_back(&other);
  for (const Graph& part : parts) all.push_back(&part);
  ModelExtras kept = extras;
  for (Signature& signature : kept.signatures) {
    if (signature.graph != 0) continue;
    for (auto* ends : {&signature.inputs, &signature.outputs}) {
      for (Signature::End& end : *ends) end.tensor = main.NumberOf(end.tensor);
      std::erase_if(*ends, [](const Signature::End& end) { return end.tensor < 0; });
    }
  }
  return WriteTflite(all, kept);
}

Result<Executable> ReadCompiledPartition(const Graph& graph, size_t partition,
                                         std::span<const int32_t> nodes,
                                         const SetBoundary& boundary) {
  // One operator for all that the partition was made from.
  const bool is_one = nodes.size() == 1 && IsCompiledOp(graph.nodes[nodes[0]]);
  const std::string name = Format("compiled partition %zu", partition);
  Result<Executable> executable = ReadExecutable(graph.compiled[partition]);
  if (!executable.ok()) return Status(executable.status()).WithContext(name);
  const auto check = [&](const std::vector<Layer>& layers, const std::vector<int32_t>& tensors,
                         const char* role) {
    if (layers.size() != tensors.size()) {
      return CorruptModel("%s: its executable has %zu %ss, its nodes have %zu", name.c_str(),
                          layers.size(), role, tensors.size());
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      const int64_t bytes = graph.tensors[tensors[i]].byte_size();
      if (layers[i].bytes == static_cast<uint64_t>(bytes)) continue;
      return CorruptModel("%s: %s %zu of its executable has %llu bytes, %s has %lld", name.c_str(),
                          role, i, static_cast<unsigned long long>(layers[i].bytes),
                          Describe(graph, tensors[i]).c_str(), static_cast<long long>(bytes));
    }
    return Status();
  };
  ATOLL_RETURN_IF_ERROR(check(executable->inputs, boundary.inputs, "input"));
  ATOLL_RETURN_IF_ERROR(check(executable->outputs, boundary.OutputsAndState(), "output"));
  for (size_t i = 0; i < executable->inference_nodes.size(); ++i) {
    int32_t& node = executable->inference_nodes[i];
    if (is_one) node = std::min(node, 0);
    if (node < 0 || static_cast<size_t>(node) < nodes.size()) continue;
    return CorruptModel("%s: instruction %zu belongs to node %d of %zu", name.c_str(), i, node,
                        nodes.size());
  }
  return executable;
}

}  // namespace atollrt
