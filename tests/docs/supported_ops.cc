// SPDX-License-Identifier: Apache-2.0
//
// docs/supported_ops.md from what the code does: the list of the CPU's operators
// (runtime/graph/operators.inc), the constraints of the device (delegate/constraints.inc) and the
// partitioner's own verdict. Without an argument it fails if the page is stale; --write writes it.
#include <cstdio>
#include <string>
#include <vector>

#include "delegate/partitioner.h"
#include "runtime/ops/apart_ops.h"
#include "runtime/ops/cpu_ops.h"
#include "tests/docs/generated_page.h"

namespace atollrt {
namespace {

constexpr char kPage[] = "docs/supported_ops.md";

struct Constraint {
  const char* predicate;
  const char* sentence;
};
constexpr Constraint kConstraints[] = {
#define ATOLL_CONSTRAINT(predicate, sentence) {#predicate, sentence},
#include "delegate/constraints.inc"
#undef ATOLL_CONSTRAINT
};

// In the order of the page's table.
constexpr DataType kTypes[] = {DataType::kInt8,    DataType::kUInt8,   DataType::kInt16,
                               DataType::kInt32,   DataType::kInt64,   DataType::kUInt32,
                               DataType::kFloat32, DataType::kFloat16, DataType::kBool,
                               DataType::kString,  DataType::kResource};

// Why the partitioner leaves the first node of a graph on the CPU; "" if it does not.
std::string Reason(const Graph& graph) {
  constexpr int64_t kPlenty = int64_t{1} << 30;
  return PartitionGraph(graph, {.memory_bytes = kPlenty}, {}).reasons[0];
}

// Asked with a version that no operator has, so that the partitioner looks at the operator and
// nothing else of the node.
bool HasDeviceInstruction(const CpuOp& op) {
  Graph graph;
  Node& node = graph.nodes.emplace_back();
  node.type = op.type;
  node.custom_name = op.custom_name;
  node.version = INT32_MAX;
  const std::string reason = Reason(graph);
  for (const Constraint& constraint : kConstraints) {
    if (reason == constraint.sentence) {
      return std::string(constraint.predicate) != "HasInstruction";
    }
  }
  return false;
}

// The rule of sets rather than of nodes: what a partition of one RELU lacks beside one that
// computes.
std::string RuleOfSets() {
  Graph graph;
  for (const OpType type : {OpType::kRELU, OpType::kADD}) {
    const int32_t input = static_cast<int32_t>(graph.tensors.size());
    for (int i = 0; i < 2; ++i) {
      Tensor& tensor = graph.tensors.emplace_back();
      tensor.type = DataType::kInt8;
      tensor.shape = {1, 8};
      tensor.quantization = {.scales = {1}, .zero_points = {0}};
    }
    Node& node = graph.nodes.emplace_back();
    node.type = type;
    node.inputs.assign(type == OpType::kADD ? 2 : 1, input);
    node.outputs = {input + 1};
    graph.inputs.push_back(input);
    graph.outputs.push_back(input + 1);
  }
  return Reason(graph);
}

// "" with a message if it is no sentence.
std::string Rule(int number, const std::string& sentence) {
  if (sentence.find(' ') != std::string::npos) return Format("%d. %s\n", number, sentence.c_str());
  std::fprintf(stderr, "%s: rule %d says '%s'\n", kPage, number, sentence.c_str());
  return {};
}

std::string TypesText(TypeSet types) {
  std::string text;
  for (const DataType type : kTypes) {
    if (types.Contains(type)) text += (text.empty() ? "" : ", ") + std::string(DataTypeName(type));
  }
  return text.empty() ? "–" : text;
}

// What libatoll-core does without.
std::string ApartText() {
  std::string text =
      "\n## What libatoll has beside that\n"
      "\n"
      "The operators of float32 and 16x8 networks, which libatoll-core does without. Where one is "
      "in the "
      "table above, too, these are more types of its data, or faster kernels for the same: sums of "
      "products may then differ in their last places from one instruction set to another, never "
      "from one number of threads to another.\n"
      "\n"
      "| operator | version | data on the CPU |\n"
      "|---|---|---|\n";
  for (const CpuOp& op : ApartOps()) {
    text += Format("| %s | %d | %s |\n", OpTypeName(op.type).c_str(), NewestKnownVersion(op.type),
                   TypesText(op.types).c_str());
  }
  return text;
}

std::string Page() {
  std::string page =
      "# Supported operators\n"
      "\n"
      "<!-- Made by tests/docs/supported_ops.cc from runtime/graph/operators.inc, "
      "delegate/constraints.inc and the partitioner. Do not edit. -->\n"
      "\n"
      "The version is the newest one that Atoll knows; older ones run as well. The types are those "
      "that the data of the operator may have on the CPU: what it computes with, as opposed to "
      "weights, biases, indices and sizes. Everything else is refused with a sentence that names "
      "the node, and so is what TensorFlow Lite refuses.\n"
      "\n"
      "| operator | version | data on the CPU | device |\n"
      "|---|---|---|---|\n";
  int on_device = 0;
  for (const CpuOp& op : CpuOps()) {
    const bool has_instruction = HasDeviceInstruction(op);
    on_device += has_instruction;
    page += Format("| %s | %d | %s | %s |\n",
                   op.type == OpType::kCUSTOM ? op.custom_name : OpTypeName(op.type).c_str(),
                   op.max_version, TypesText(op.types).c_str(), has_instruction ? "yes" : "no");
  }
  page += Format(
      "\n%zu operators on the CPU, %d of them with instructions of the device.\n"
      "\n"
      "## What runs on the device\n"
      "\n"
      "A node runs on the device if all of this holds; the first that does not is the reason that "
      "`atoll inspect` gives for leaving it on the CPU.\n"
      "\n",
      CpuOps().size(), on_device);
  std::vector<std::string> sentences;
  for (const Constraint& constraint : kConstraints) sentences.push_back(constraint.sentence);
  sentences.push_back(RuleOfSets());
  int number = 0;
  for (const std::string& sentence : sentences) {
    const std::string rule = Rule(++number, sentence);
    if (rule.empty()) return {};
    page += rule;
  }
  return page + ApartText();
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  return atollrt::RunGeneratedPage(argc, argv, atollrt::kPage,
                                   [](const std::string&) { return atollrt::Page(); });
}
