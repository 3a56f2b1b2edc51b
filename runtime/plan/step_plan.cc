// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/step_plan.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <queue>
#include <utility>

#include "runtime/graph/compiled_op.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/plan/line_chain.h"

namespace atollrt {
namespace {

// Handing work to another thread and waiting for it takes about a microsecond (bench/
// thread_pool_bench.cc). What is done in two, by the slowest kernels for bytes, is not worth that.
bool IsSmall(const Graph& graph, const Node& node) {
  constexpr int64_t kFewMacs = 32 << 10, kFewBytes = 4 << 10;
  int64_t bytes = 0;
  for (const int32_t tensor : node.inputs) {
    if (tensor < 0) continue;
    if (graph.tensors[tensor].type == DataType::kFloat32) return false;
    if (!graph.tensors[tensor].is_constant()) bytes += graph.tensors[tensor].byte_size();
  }
  for (const int32_t tensor : node.outputs) bytes += graph.tensors[tensor].byte_size();
  return MultiplyAccumulates(graph, node) <= kFewMacs && bytes <= kFewBytes;
}

bool IsVariable(const Graph& graph, int32_t tensor) {
  return tensor >= 0 && graph.tensors[tensor].is_variable;
}

// Filters keep weights in an order of their own. Nodes may share them, as many as there are steps
// of an unrolled network, but a file of a megabyte must not ask for many gigabytes.
Status CheckWeightCopies(const Graph& graph, const std::vector<NodePlacement>& placements,
                         size_t model_bytes) {
  constexpr int64_t kMaxCopiesOfByte = 16;
  constexpr int64_t kCopiesOfSmallModel = int64_t{1} << 30;
  int64_t bytes = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (placements[i].partition < 0) bytes += KeptWeightBytes(graph, graph.nodes[i]);
  }
  const auto limit = kMaxCopiesOfByte * static_cast<int64_t>(model_bytes) + kCopiesOfSmallModel;
  if (bytes <= limit) return Status();
  return ResourceExhausted(
      "nodes share their weights so often that %lld bytes of them would be prepared; the model "
      "has %zu bytes",
      static_cast<long long>(bytes), model_bytes);
}

// Who touches each tensor, by the steps' positions.
struct TensorUses {
  std::vector<int32_t> readers;  // steps and, if it is an output, the caller
  std::vector<size_t> writer;    // the number of steps for none
};

TensorUses CountUses(const Graph& graph, const std::vector<Step>& steps) {
  TensorUses uses{.readers = std::vector<int32_t>(graph.tensors.size()),
                  .writer = std::vector<size_t>(graph.tensors.size(), steps.size())};
  for (const int32_t tensor : graph.outputs) ++uses.readers[tensor];
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t tensor : steps[i].inputs) {
      if (tensor >= 0) ++uses.readers[tensor];
    }
    for (const int32_t tensor : steps[i].outputs) uses.writer[tensor] = i;
  }
  return uses;
}

// `executor` takes over from the steps at these positions, at the place of the last of them. What
// they leave has no executor, until RemoveReplaced.
void Replace(const std::vector<size_t>& positions, std::vector<int32_t> inputs,
             std::unique_ptr<NodeExecutor> executor, std::vector<Step>* steps) {
  Step replacement;
  replacement.is_small = true;
  for (const size_t position : positions) {
    replacement.is_small &= (*steps)[position].is_small;
    replacement.members.push_back(std::exchange((*steps)[position], Step()));
  }
  replacement.owned = std::move(executor);
  replacement.executor = replacement.owned.get();
  replacement.node = replacement.members.front().node;
  replacement.inputs = std::move(inputs);
  replacement.outputs = replacement.members.back().outputs;
  (*steps)[positions.back()] = std::move(replacement);
}

void RemoveReplaced(std::vector<Step>* steps) {
  std::erase_if(*steps, [](const Step& step) { return step.executor == nullptr; });
}

// Before filters become parts of other steps.
int64_t UsedPackedWeightBytes(const Graph& graph, const std::vector<Step>& steps) {
  int64_t bytes = 0;
  for (const Step& step : steps) {
    const LineRunner* filter = step.partition < 0 ? step.executor->line_runner() : nullptr;
    if (filter == nullptr || !filter->uses_packed_weights()) continue;
    const int32_t node = step.members.empty() ? step.node : step.members.back().node;
    const Tensor& weights = *graph.Input(graph.nodes[node], 1);
    bytes += static_cast<int64_t>(weights.packed_weights.size());
  }
  return bytes;
}

// Of smaller ones there are few whole pages.
constexpr size_t kLargeBytes = 16 << 10;

// Which bytes of the model a kernel has packed for itself, of those that are worth a call.
void TellOfPacked(const Graph& graph, const Node& node, const NodeExecutor& executor,
                  const PlanHost& host) {
  const LineRunner* filter = executor.line_runner();
  if (!host.weights_read || filter == nullptr || filter->uses_packed_weights()) return;
  const std::span<const uint8_t> weights = graph.Input(node, 1)->data;
  if (weights.size() >= kLargeBytes) host.weights_read(weights);
}

Result<std::unique_ptr<NodeExecutor>> PrepareForHost(const Graph& graph, const Node& node,
                                                     const PlanHost& host) {
  if (node.type == OpType::kCUSTOM && node.custom_name == kEdgeTpuOperator) {
    return Unsupported(
        "%s: compiled for a Coral, and none is used; the model that it was made from can run here",
        Describe(graph, node).c_str());
  }
  if (IsCompiledOp(node)) {
    return Unsupported(
        "%s: what it was compiled from is not here; it runs on a device like that which it was "
        "compiled for, and where Atoll reads the model file, which has that, too",
        Describe(graph, node).c_str());
  }
  auto executor = PrepareCpuNode(graph, node, host.features);
  if (executor.ok()) TellOfPacked(graph, node, **executor, host);
  return executor;
}

// By nodes; nullptr for those in partitions. Of several that cannot be, the first one says why.
Result<std::vector<std::unique_ptr<NodeExecutor>>> PrepareNodes(
    const Graph& graph, const std::vector<NodePlacement>& placements, const PlanHost& host) {
  constexpr size_t kMostTasks = 1 << 24;
  const size_t count = graph.nodes.size();
  std::vector<std::unique_ptr<NodeExecutor>> executors(count);
  std::atomic<size_t> first_failed = count;
  Status failure;
  std::mutex mutex;  // of changes to these two
  const auto prepare = [&](size_t node) {
    if (placements[node].partition >= 0 || node > first_failed) return;
    auto executor = PrepareForHost(graph, graph.nodes[node], host);
    if (executor.ok()) {
      executors[node] = *std::move(executor);
      return;
    }
    const std::lock_guard lock(mutex);
    if (node > first_failed) return;
    first_failed = node;
    failure = executor.status();
  };
  ParallelFor(count < kMostTasks ? host.pool : nullptr, static_cast<int>(count),
              [&](int node, int) { prepare(static_cast<size_t>(node)); });
  ATOLL_RETURN_IF_ERROR(failure);
  return executors;
}

}  // namespace

Result<StepPlan> PlanNodes(const Graph& graph, size_t model_bytes, Delegate* delegate,
                           const PlanOptions& options, const PlanHost& host) {
  StepPlan plan;
  plan.placements.resize(graph.nodes.size());
  if (delegate != nullptr) {
    ATOLL_ASSIGN_OR_RETURN(DelegatePlan delegated, delegate->Plan(graph, options));
    plan.partitions = std::move(delegated.partitions);
    for (size_t i = 0; i < plan.placements.size(); ++i) {
      plan.placements[i].reason = std::move(delegated.refusals[i]);
    }
    for (size_t p = 0; p < plan.partitions.size(); ++p) {
      for (const int32_t node : plan.partitions[p].nodes) {
        plan.placements[node].partition = static_cast<int32_t>(p);
      }
    }
  }
  ATOLL_RETURN_IF_ERROR(CheckWeightCopies(graph, plan.placements, model_bytes));
  ATOLL_ASSIGN_OR_RETURN(auto executors, PrepareNodes(graph, plan.placements, host));
  std::vector<bool> partition_seen(plan.partitions.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Step step;
    step.node = static_cast<int32_t>(i);
    step.partition = plan.placements[i].partition;
    if (step.partition >= 0) {
      if (partition_seen[step.partition]) continue;
      partition_seen[step.partition] = true;
      const Partition& partition = plan.partitions[step.partition];
      step.executor = partition.executor.get();
      step.inputs = partition.inputs;
      step.outputs = partition.outputs;
    } else {
      const Node& node = graph.nodes[i];
      step.owned = std::move(executors[i]);
      step.executor = step.owned.get();
      step.inputs = node.inputs;
      step.outputs = node.outputs;
      step.is_small = IsSmall(graph, node);
      if (const LineRunner* filter = step.executor->line_runner()) {
        plan.placements[i].kernel = {.name = filter->kernel_name(),
                                     .channels = filter->shape().output_c,
                                     .float_channels = filter->CountFloatChannels(),
                                     .uses_packed_weights = filter->uses_packed_weights()};
      }
    }
    plan.steps.push_back(std::move(step));
  }
  return plan;
}

Result<std::vector<size_t>> OrderSteps(const Graph& graph, const std::vector<StepNodes>& steps) {
  // How many steps a step waits for, and which wait for it.
  std::vector<size_t> waits_for(steps.size());
  std::vector<std::vector<size_t>> waiting(steps.size());
  const auto wait = [&](size_t step, size_t for_step) {
    ++waits_for[step];
    waiting[for_step].push_back(step);
  };
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> writer(graph.tensors.size(), kNone);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t tensor : steps[i].outputs) writer[tensor] = i;
  }
  std::vector<bool> is_given(graph.tensors.size());
  for (size_t i = 0; i < is_given.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    is_given[i] = tensor.is_constant() || tensor.is_variable || tensor.element_count() == 0;
  }
  for (const int32_t input : graph.inputs) is_given[input] = true;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t tensor : steps[i].inputs) {
      if (tensor < 0 || is_given[tensor]) continue;
      // What nobody writes is waited for in vain.
      writer[tensor] == kNone ? static_cast<void>(++waits_for[i]) : wait(i, writer[tensor]);
    }
  }
  std::vector<size_t> step_of(graph.nodes.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t node : steps[i].nodes) step_of[node] = i;
  }
  for (const auto& [first, second] : StateOrder(graph)) {
    if (step_of[first] != step_of[second]) wait(step_of[second], step_of[first]);
  }

  // Rounds through all steps in their order, each of which takes what is ready when it gets there:
  // what waits for a later step is of the next round. By round and step.
  using Turn = std::pair<size_t, size_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> ready;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (waits_for[i] == 0) ready.emplace(0, i);
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    const auto [round, step] = ready.top();
    ready.pop();
    order.push_back(step);
    for (const size_t next : waiting[step]) {
      if (--waits_for[next] == 0) ready.emplace(next > step ? round : round + 1, next);
    }
  }
  if (order.size() < steps.size()) return InternalError("the partitions form a cycle");
  return order;
}

Result<StepPlan> InOrder(const Graph& graph, StepPlan plan) {
  std::vector<StepNodes> nodes;
  for (const Step& step : plan.steps) {
    nodes.push_back({.nodes = step.partition < 0 ? std::vector<int32_t>{step.node}
                                                 : plan.partitions[step.partition].nodes,
                     .inputs = step.inputs,
                     .outputs = step.outputs});
  }
  ATOLL_ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderSteps(graph, nodes));
  std::vector<Step> ordered;
  for (const size_t step : order) ordered.push_back(std::move(plan.steps[step]));
  plan.steps = std::move(ordered);
  return plan;
}

Result<StepPlan> FoldPads(const Graph& graph, StepPlan plan, CpuFeatures features) {
  std::vector<Step>& steps = plan.steps;
  const TensorUses uses = CountUses(graph, steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].partition >= 0) continue;
    const OpType type = graph.nodes[steps[i].node].type;
    if (type != OpType::kCONV_2D && type != OpType::kDEPTHWISE_CONV_2D) continue;
    const int32_t padded = steps[i].inputs[0];
    const size_t pad = uses.writer[padded];
    if (uses.readers[padded] != 1 || pad >= i || steps[pad].partition >= 0) continue;
    if (!steps[pad].members.empty()) continue;  // a convolution already, with a PAD of its own
    // Somebody may change it before the convolution.
    if (IsVariable(graph, steps[pad].inputs[0])) continue;
    const Node& node = graph.nodes[steps[i].node];
    Result<std::unique_ptr<NodeExecutor>> executor =
        PreparePaddedFilter(graph, graph.nodes[steps[pad].node], node, features);
    if (!executor.ok()) return Status(executor.status()).WithContext(Describe(graph, node));
    if (*executor == nullptr) continue;
    Replace({pad, i}, {steps[pad].inputs[0]}, *std::move(executor), &steps);
  }
  RemoveReplaced(&steps);
  return plan;
}

Result<StepPlan> AttachTails(const Graph& graph, StepPlan plan, CpuFeatures features) {
  std::vector<Step>& steps = plan.steps;
  const TensorUses uses = CountUses(graph, steps);
  for (size_t i = 1; i < steps.size(); ++i) {
    const size_t filter = i - 1;
    if (steps[i].partition >= 0 || steps[filter].partition >= 0) continue;
    if (steps[filter].executor == nullptr || steps[i].inputs.size() != 2) continue;
    for (size_t position = 0; position < 2; ++position) {
      const int32_t tensor = steps[i].inputs[position];
      if (tensor < 0 || uses.writer[tensor] != filter || uses.readers[tensor] != 1) continue;
      if (graph.tensors[tensor].is_variable) continue;
      const Node& node = graph.nodes[steps[i].node];
      Result<std::unique_ptr<NodeExecutor>> executor =
          PrepareTailedFilter(graph, *steps[filter].executor, node, position, features);
      if (!executor.ok()) return Status(executor.status()).WithContext(Describe(graph, node));
      if (*executor == nullptr) continue;
      Replace({filter, i}, {steps[filter].inputs[0], steps[i].inputs[1 - position]},
              *std::move(executor), &steps);
      break;
    }
  }
  RemoveReplaced(&steps);
  return plan;
}

StepPlan ChainLines(const Graph& graph, StepPlan plan) {
  std::vector<Step>& steps = plan.steps;
  std::vector<ChainStep> candidates;
  for (const Step& step : steps) {
    // What a chain reads, it reads where its last step stands.
    const bool may_join = step.partition < 0 && std::ranges::none_of(step.inputs, [&](int32_t t) {
                            return IsVariable(graph, t);
                          });
    candidates.push_back({.runner = may_join ? step.executor->line_runner() : nullptr,
                          .inputs = step.inputs,
                          .outputs = step.outputs});
  }
  for (const std::vector<size_t>& chain : FindLineChains(graph, candidates)) {
    std::vector<LineStage> stages;
    std::vector<int32_t> inputs = {steps[chain.front()].inputs[0]};
    for (const size_t position : chain) {
      const PairTail* tail = steps[position].executor->pair_tail();
      stages.push_back({candidates[position].runner, tail});
      if (tail != nullptr) inputs.push_back(steps[position].inputs[1]);
    }
    Replace(chain, std::move(inputs), std::make_unique<LineChain>(std::move(stages)), &steps);
  }
  RemoveReplaced(&steps);
  return plan;
}

Result<StepPlan> PlanSteps(const Graph& graph, size_t model_bytes, Delegate* delegate,
                           const PlanOptions& options, const PlanHost& host,
                           bool keeps_all_tensors) {
  ATOLL_ASSIGN_OR_RETURN(StepPlan plan, PlanNodes(graph, model_bytes, delegate, options, host));
  ATOLL_ASSIGN_OR_RETURN(plan, InOrder(graph, std::move(plan)));
  plan.keeps_all_tensors = keeps_all_tensors;
  if (!keeps_all_tensors) {
    ATOLL_ASSIGN_OR_RETURN(plan, FoldPads(graph, std::move(plan), host.features));
  }
  plan.used_packed_weight_bytes = UsedPackedWeightBytes(graph, plan.steps);
  if (keeps_all_tensors) return plan;
  ATOLL_ASSIGN_OR_RETURN(plan, AttachTails(graph, std::move(plan), host.features));
  return ChainLines(graph, std::move(plan));
}

}  // namespace atollrt
