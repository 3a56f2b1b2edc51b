// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu_ops.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "runtime/ops/apart_ops.h"
#include "runtime/ops/executors.h"

namespace atollrt {
namespace {

constexpr auto MakeCpuOps() {
  using namespace types;
  return std::to_array<CpuOp>({
#define ATOLL_OP(name, number, version, data, Infer, Prepare) \
  {OpType::k##name, "", version, data, Prepare},
#define ATOLL_CUSTOM_OP(name, data, Infer, Prepare, Options) \
  {OpType::kCUSTOM, name, 1, data, Prepare},
#include "runtime/graph/operators.inc"
  });
}
constexpr auto kCpuOps = MakeCpuOps();

// The operand whose type decides how a node computes; nullptr if it has no data.
const Tensor* DataOf(const Graph& graph, const Node& node) {
  switch (node.type) {
    case OpType::kCALL_ONCE:
    case OpType::kVAR_HANDLE:
      return nullptr;
    case OpType::kREAD_VARIABLE:
      return &graph.Output(node);
    case OpType::kASSIGN_VARIABLE:
    case OpType::kSPLIT:
      return graph.Input(node, 1);
    case OpType::kTRANSPOSE_CONV:
      return graph.Input(node, 2);
    default:
      return graph.Input(node, 0);
  }
}

// "int8, uint8 or float32".
std::string TypeNames(TypeSet types) {
  std::string text;
  std::string last;
  for (int number = 0; number < 32; ++number) {
    const DataType type = static_cast<DataType>(number);
    if (!types.Contains(type)) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + last;
    last = DataTypeName(type);
  }
  return text.empty() ? last : text + " or " + last;
}

const CpuOp* FindOp(std::span<const CpuOp> ops, const Node& node) {
  const auto op = std::find_if(ops.begin(), ops.end(), [&](const CpuOp& each) {
    return each.type == node.type && each.custom_name == node.custom_name;
  });
  return op == ops.end() ? nullptr : &*op;
}

Status CheckDataType(const Graph& graph, const Node& node, TypeSet types) {
  const Tensor* data = DataOf(graph, node);
  if (data == nullptr || types.Contains(data->type)) return Status();
  return Unsupported("'%s' has type %s, must be %s", data->name.c_str(), DataTypeName(data->type),
                     TypeNames(types).c_str());
}

}  // namespace

std::span<const CpuOp> CpuOps() { return kCpuOps; }

int32_t NewestKnownVersion(OpType type) {
  Node node;
  node.type = type;
  for (const std::span<const CpuOp> ops : {CpuOps(), ApartOps()}) {
    if (const CpuOp* op = FindOp(ops, node)) return op->max_version;
  }
  return 0;
}

Result<std::unique_ptr<NodeExecutor>> PrepareCpuNode(const Graph& graph, const Node& node,
                                                     CpuFeatures features) {
  const CpuOp* const apart = FindOp(ApartOps(), node);
  const CpuOp* op = FindOp(kCpuOps, node);
  if (op == nullptr) op = apart;
  if (op == nullptr) {
    return Unsupported("%s: Atoll has no %soperator of this name", Describe(graph, node).c_str(),
                       node.type == OpType::kCUSTOM ? "custom " : "");
  }
  if (node.version > op->max_version) {
    return Unsupported("%s: version %d; the newest known one is %d", Describe(graph, node).c_str(),
                       node.version, op->max_version);
  }
  Status status =
      CheckDataType(graph, node, apart == nullptr ? op->types : op->types | apart->types);
  if (!status.ok()) return std::move(status).WithContext(Describe(graph, node));
  Executor executor = std::unique_ptr<NodeExecutor>();
  if (apart != nullptr && apart->types.Contains(DataOf(graph, node)->type)) {
    executor = apart->prepare(graph, node, features);
  }
  if (executor.ok() && *executor == nullptr) executor = op->prepare(graph, node, features);
  if (!executor.ok()) return Status(executor.status()).WithContext(Describe(graph, node));
  return executor;
}

Status EvaluateNode(const Graph& graph, const Node& node, std::span<Buffer> outputs) {
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeExecutor> executor,
                         PrepareCpuNode(graph, node, CpuFeatures{}));
  ThreadPool pool(1);
  RequestCost cost;
  ATOLL_ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(executor->ScratchBytes(pool.threads())));
  std::vector<const uint8_t*> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Tensor* input = graph.Input(node, i);
    inputs.push_back(input == nullptr ? nullptr : input->data.data());
  }
  std::vector<uint8_t*> results;
  for (Buffer& output : outputs) results.push_back(output.data());
  const std::vector<uint8_t*> state(inputs.size());
  return executor->Invoke({.inputs = inputs,
                           .outputs = results,
                           .state = state,
                           .scratch = scratch.data(),
                           .pool = &pool,
                           .cost = &cost});
}

}  // namespace atollrt
