// SPDX-License-Identifier: Apache-2.0
#include "runtime/interpreter.h"

#include <algorithm>

#include "runtime/arena_layout.h"
#include "runtime/base/bytes.h"
#include "runtime/base/host_cpus.h"
#include "runtime/base/log.h"
#include "runtime/base/monotonic.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/line_chain.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/step_order.h"

namespace atollrt {
namespace {

constexpr int kMaxDefaultThreads = 4;

int ThreadCount(int requested) {
  if (requested > 0) return requested;
  return std::min(GetHostCpus().cores, kMaxDefaultThreads);
}

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

}  // namespace

Interpreter::Interpreter(std::shared_ptr<const Model> model, const Graph& graph, int threads)
    : model_(std::move(model)), graph_(graph), pool_(threads), caller_pool_(1) {}

Interpreter::~Interpreter() {
  {
    const std::lock_guard lock(async_mutex_);
    async_stop_ = true;
  }
  async_changed_.notify_all();
  if (async_thread_.joinable()) async_thread_.join();
}

Result<std::unique_ptr<Interpreter>> Interpreter::Create(std::shared_ptr<const Model> model,
                                                         const InterpreterOptions& options) {
  if (options.threads < 0 || options.threads > 256) {
    return InvalidArgument("%d threads; must be 0 (default) to 256", options.threads);
  }
  const Graph& graph = model->graph();
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Interpreter> interpreter,
                         CreateFor(std::move(model), graph, options, /*parent=*/nullptr));
  interpreter->ResetVariables();
  // Kernels and programs have packed most weights, some of which would otherwise be there twice.
  interpreter->model_->DropPages();
  ATOLL_RETURN_IF_ERROR(interpreter->PrepareFallback(options));
  return interpreter;
}

Status Interpreter::PrepareFallback(const InterpreterOptions& options) {
  if (options.fallback == nullptr) return Status();
  ATOLL_ASSIGN_OR_RETURN(fallback_, Create(options.fallback, {.threads = options.threads}));
  const auto check = [&](const char* kind, const std::vector<int32_t>& own,
                         const std::vector<int32_t>& other) -> Status {
    if (own.size() != other.size()) {
      return InvalidArgument("the fallback model has %zu %ss, the model %zu", other.size(), kind,
                             own.size());
    }
    for (size_t i = 0; i < own.size(); ++i) {
      const Tensor& a = graph().tensors[own[i]];
      const Tensor& b = fallback_->graph().tensors[other[i]];
      if (a.type != b.type || a.shape != b.shape) {
        return InvalidArgument(
            "%s %zu of the fallback model, '%s', has another type or shape than "
            "'%s' of the model",
            kind, i, b.name.c_str(), a.name.c_str());
      }
      // Nothing can be written there.
      if (a.is_constant() &&
          (!b.is_constant() || !std::equal(a.data.begin(), a.data.begin() + a.byte_size(),
                                           b.data.begin(), b.data.begin() + b.byte_size()))) {
        return InvalidArgument(
            "%s %zu of the fallback model, '%s', is not the same constant as '%s' of the model",
            kind, i, b.name.c_str(), a.name.c_str());
      }
    }
    return Status();
  };
  ATOLL_RETURN_IF_ERROR(check("input", graph().inputs, fallback_->graph().inputs));
  return check("output", graph().outputs, fallback_->graph().outputs);
}

// Before an invocation, which may use their memory for other tensors.
void Interpreter::KeepInputs() {
  for (size_t i = 0; i < graph().inputs.size(); ++i) {
    const std::span<const uint8_t> from = ConstTensorBytes(graph().inputs[i]);
    const std::span<uint8_t> to = fallback_->TensorBytes(fallback_->graph().inputs[i]);
    std::copy(from.begin(), from.end(), to.begin());
  }
}

Status Interpreter::InvokeFallback(const Status& reason) {
  if (!on_fallback_) {
    Log(LogSeverity::kWarning, "the fallback model completes what the device does not: %s",
        reason.message().c_str());
  }
  on_fallback_ = true;
  ATOLL_RETURN_IF_ERROR(fallback_->Invoke().WithContext("the fallback model"));
  for (size_t i = 0; i < graph().outputs.size(); ++i) {
    if (graph().tensors[graph().outputs[i]].is_constant()) continue;  // the same in both
    const std::span<const uint8_t> from =
        fallback_->ConstTensorBytes(fallback_->graph().outputs[i]);
    std::copy(from.begin(), from.end(), TensorBytes(graph().outputs[i]).begin());
  }
  return Status();
}

Result<std::unique_ptr<Interpreter>> Interpreter::CreateFor(std::shared_ptr<const Model> model,
                                                            const Graph& graph,
                                                            const InterpreterOptions& options,
                                                            Interpreter* parent) {
  std::unique_ptr<Interpreter> interpreter(
      new Interpreter(std::move(model), graph, ThreadCount(options.threads)));
  ATOLL_RETURN_IF_ERROR(interpreter->Plan(options.delegate, options.plan));
  ATOLL_RETURN_IF_ERROR(interpreter->PrepareSteps());
  ATOLL_RETURN_IF_ERROR(interpreter->OrderSteps());
  ATOLL_RETURN_IF_ERROR(interpreter->FoldPads());
  interpreter->CountPackedWeights();
  ATOLL_RETURN_IF_ERROR(interpreter->AttachTails());
  interpreter->ChainSteps();
  ATOLL_RETURN_IF_ERROR(interpreter->AllocateArena(parent));
  ATOLL_RETURN_IF_ERROR(interpreter->CreateCallees());
  interpreter->BindOperands();
  return interpreter;
}

Status Interpreter::Plan(Delegate* delegate, const PlanOptions& options) {
  placements_.resize(graph().nodes.size());
  if (delegate == nullptr) return Status();
  ATOLL_ASSIGN_OR_RETURN(DelegatePlan plan, delegate->Plan(graph(), options));
  partitions_ = std::move(plan.partitions);
  for (size_t i = 0; i < placements_.size(); ++i) {
    placements_[i].reason = std::move(plan.refusals[i]);
  }
  for (size_t p = 0; p < partitions_.size(); ++p) {
    for (const int32_t node : partitions_[p].nodes) {
      placements_[node].partition = static_cast<int32_t>(p);
    }
  }
  return Status();
}

// Filters keep weights in an order of their own. Nodes may share them, as many as there are steps
// of an unrolled network, but a file of a megabyte must not ask for many gigabytes.
Status Interpreter::CheckWeightCopies() const {
  constexpr int64_t kMaxCopiesOfByte = 16;
  constexpr int64_t kCopiesOfSmallModel = int64_t{1} << 30;
  int64_t bytes = 0;
  for (size_t i = 0; i < graph().nodes.size(); ++i) {
    const Node& node = graph().nodes[i];
    const bool is_filter =
        node.type == OpType::kCONV_2D || node.type == OpType::kDEPTHWISE_CONV_2D ||
        node.type == OpType::kFULLY_CONNECTED || node.type == OpType::kTRANSPOSE_CONV;
    if (is_filter && placements_[i].partition < 0) bytes += graph().Input(node, 1)->byte_size();
  }
  const int64_t model_bytes = static_cast<int64_t>(model_->bytes().size());
  if (bytes <= kMaxCopiesOfByte * model_bytes + kCopiesOfSmallModel) return Status();
  return ResourceExhausted(
      "filters share their weights so often that %lld bytes of them would be prepared; the model "
      "has %lld bytes",
      static_cast<long long>(bytes), static_cast<long long>(model_bytes));
}

// One step per CPU node and one per partition (at the place of its first node, for now).
Status Interpreter::PrepareSteps() {
  ATOLL_RETURN_IF_ERROR(CheckWeightCopies());
  ATOLL_ASSIGN_OR_RETURN(const CpuFeatures features, DetectCpuFeatures());
  std::vector<bool> partition_seen(partitions_.size());
  for (size_t i = 0; i < graph().nodes.size(); ++i) {
    Step step;
    step.node = static_cast<int32_t>(i);
    step.partition = placements_[i].partition;
    if (step.partition >= 0) {
      if (partition_seen[step.partition]) continue;
      partition_seen[step.partition] = true;
      Partition& partition = partitions_[step.partition];
      step.executor = partition.executor.get();
      step.input_tensors = partition.inputs;
      step.output_tensors = partition.outputs;
    } else {
      const Node& node = graph().nodes[i];
      if (node.type == OpType::kCUSTOM && node.custom_name == kEdgeTpuOperator) {
        return Unsupported(
            "%s: the model was compiled for a Coral Edge TPU by Google's compiler, and no Coral is "
            "used; only the model that it was compiled from can run here",
            Describe(graph(), node).c_str());
      }
      ATOLL_ASSIGN_OR_RETURN(step.owned, PrepareCpuNode(graph(), node, features));
      step.executor = step.owned.get();
      step.input_tensors = node.inputs;
      step.output_tensors = node.outputs;
      step.is_small = IsSmall(graph(), node);
    }
    steps_.push_back(std::move(step));
  }
  return Status();
}

Status Interpreter::OrderSteps() {
  std::vector<StepNodes> nodes;
  for (const Step& step : steps_) {
    nodes.push_back({.nodes = step.partition < 0 ? std::vector<int32_t>{step.node}
                                                 : partitions_[step.partition].nodes,
                     .inputs = step.input_tensors,
                     .outputs = step.output_tensors});
  }
  ATOLL_ASSIGN_OR_RETURN(const std::vector<size_t> order, atollrt::OrderSteps(graph(), nodes));
  std::vector<Step> ordered;
  for (const size_t step : order) ordered.push_back(std::move(steps_[step]));
  steps_ = std::move(ordered);
  return Status();
}

// Who touches each tensor, by the steps' positions.
struct Interpreter::TensorUses {
  std::vector<int32_t> readers;  // steps and, if it is an output, the caller
  std::vector<size_t> writer;    // the number of steps for none
};

Interpreter::TensorUses Interpreter::CountUses() const {
  TensorUses uses{.readers = std::vector<int32_t>(graph().tensors.size()),
                  .writer = std::vector<size_t>(graph().tensors.size(), steps_.size())};
  for (const int32_t tensor : graph().outputs) ++uses.readers[tensor];
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const int32_t tensor : steps_[i].input_tensors) {
      if (tensor >= 0) ++uses.readers[tensor];
    }
    for (const int32_t tensor : steps_[i].output_tensors) uses.writer[tensor] = i;
  }
  return uses;
}

// A PAD whose only reader is a convolution becomes the padding of that.
Status Interpreter::FoldPads() {
  const TensorUses uses = CountUses();
  ATOLL_ASSIGN_OR_RETURN(const CpuFeatures features, DetectCpuFeatures());
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].partition >= 0 || steps_[i].executor->line_runner() == nullptr) continue;
    const int32_t padded = steps_[i].input_tensors[0];
    const size_t pad = uses.writer[padded];
    if (uses.readers[padded] != 1 || pad >= i || steps_[pad].partition >= 0) continue;
    if (!steps_[pad].members.empty()) continue;  // a convolution already, with a PAD of its own
    // Somebody may change it before the convolution.
    if (IsVariable(steps_[pad].input_tensors[0])) continue;
    const Node& node = graph().nodes[steps_[i].node];
    Result<std::unique_ptr<NodeExecutor>> executor =
        PreparePaddedFilter(graph(), graph().nodes[steps_[pad].node], node, features);
    if (!executor.ok()) return Status(executor.status()).WithContext(Describe(graph(), node));
    if (*executor != nullptr) {
      ReplaceSteps({pad, i}, {steps_[pad].input_tensors[0]}, *std::move(executor));
    }
  }
  RemoveReplacedSteps();
  return Status();
}

// Before filters become parts of other steps.
void Interpreter::CountPackedWeights() {
  for (const Step& step : steps_) {
    const LineRunner* filter = step.partition < 0 ? step.executor->line_runner() : nullptr;
    if (filter == nullptr || !filter->uses_packed_weights()) continue;
    const int32_t node = step.members.empty() ? step.node : step.members.back().node;
    const Tensor& weights = *graph().Input(graph().nodes[node], 1);
    used_packed_weight_bytes_ += static_cast<int64_t>(weights.packed_weights.size());
  }
}

// An ADD right behind a convolution, of which it is the only reader, becomes the tail of that.
Status Interpreter::AttachTails() {
  const TensorUses uses = CountUses();
  ATOLL_ASSIGN_OR_RETURN(const CpuFeatures features, DetectCpuFeatures());
  for (size_t i = 1; i < steps_.size(); ++i) {
    const size_t filter = i - 1;
    if (steps_[i].partition >= 0 || steps_[filter].partition >= 0) continue;
    if (steps_[filter].executor == nullptr || steps_[i].input_tensors.size() != 2) continue;
    for (size_t position = 0; position < 2; ++position) {
      const int32_t tensor = steps_[i].input_tensors[position];
      if (tensor < 0 || uses.writer[tensor] != filter || uses.readers[tensor] != 1) continue;
      if (graph().tensors[tensor].is_variable) continue;
      const Node& node = graph().nodes[steps_[i].node];
      Result<std::unique_ptr<NodeExecutor>> executor =
          PrepareTailedFilter(graph(), *steps_[filter].executor, node, position, features);
      if (!executor.ok()) return Status(executor.status()).WithContext(Describe(graph(), node));
      if (*executor == nullptr) continue;
      ReplaceSteps({filter, i},
                   {steps_[filter].input_tensors[0], steps_[i].input_tensors[1 - position]},
                   *std::move(executor));
      break;
    }
  }
  RemoveReplacedSteps();
  return Status();
}

void Interpreter::ChainSteps() {
  std::vector<ChainStep> candidates;
  for (const Step& step : steps_) {
    // What a chain reads, it reads where its last step stands.
    const bool may_join =
        step.partition < 0 && std::none_of(step.input_tensors.begin(), step.input_tensors.end(),
                                           [this](int32_t tensor) { return IsVariable(tensor); });
    candidates.push_back({.runner = may_join ? step.executor->line_runner() : nullptr,
                          .inputs = step.input_tensors,
                          .outputs = step.output_tensors});
  }
  for (const std::vector<size_t>& chain : FindLineChains(graph(), candidates)) {
    std::vector<LineStage> stages;
    std::vector<int32_t> inputs = {steps_[chain.front()].input_tensors[0]};
    for (const size_t position : chain) {
      const PairTail* tail = steps_[position].executor->pair_tail();
      stages.push_back({candidates[position].runner, tail});
      if (tail != nullptr) inputs.push_back(steps_[position].input_tensors[1]);
    }
    ReplaceSteps(chain, std::move(inputs), std::make_unique<LineChain>(std::move(stages)));
  }
  RemoveReplacedSteps();
}

// At the place of the last of them. What they leave is without an executor.
void Interpreter::ReplaceSteps(std::vector<size_t> members, std::vector<int32_t> inputs,
                               std::unique_ptr<NodeExecutor> executor) {
  Step replacement;
  replacement.is_small = true;
  for (const size_t position : members) {
    replacement.is_small &= steps_[position].is_small;
    replacement.members.push_back(std::move(steps_[position]));
    steps_[position] = Step();
  }
  replacement.owned = std::move(executor);
  replacement.executor = replacement.owned.get();
  replacement.node = replacement.members.front().node;
  replacement.input_tensors = std::move(inputs);
  replacement.output_tensors = replacement.members.back().output_tensors;
  steps_[members.back()] = std::move(replacement);
}

void Interpreter::RemoveReplacedSteps() {
  std::erase_if(steps_, [](const Step& step) { return step.executor == nullptr; });
}

// Calls function(step, member, is_last) for all members of steps, and members of members.
template <typename Function>
void Interpreter::ForEachMember(const Function& function) {
  for (Step& step : steps_) {
    const auto visit = [&](const auto& self, Step* of) -> void {
      for (Step& member : of->members) {
        function(step, &member, &member == &of->members.back());
        self(self, &member);
      }
    };
    visit(visit, &step);
  }
}

Status Interpreter::AllocateArena(Interpreter* parent) {
  std::vector<StepMemory> memory;
  for (const Step& step : steps_) {
    const auto scratch_bytes = [&](const auto& self, const Step& of) -> size_t {
      size_t bytes = of.executor->ScratchBytes(pool_.threads());
      for (const Step& member : of.members) bytes = std::max(bytes, self(self, member));
      return bytes;
    };
    const bool is_node = step.partition < 0 && step.members.empty();
    memory.push_back({.node = is_node ? &graph().nodes[step.node] : nullptr,
                      .inputs = step.input_tensors,
                      .outputs = step.output_tensors,
                      .scratch_bytes = static_cast<int64_t>(scratch_bytes(scratch_bytes, step))});
  }
  const std::span<const Variable> variables =
      parent == nullptr ? std::span(model_->variables()) : std::span<const Variable>();
  ArenaLayout layout = LayOutArena(graph(), memory, variables);
  if (layout.total_bytes > int64_t{4} << 30) {
    return ResourceExhausted("the model needs %lld bytes for its intermediate tensors",
                             static_cast<long long>(layout.total_bytes));
  }
  ATOLL_ASSIGN_OR_RETURN(arena_, Buffer::Allocate(static_cast<size_t>(layout.total_bytes)));
  arena_lower_bound_bytes_ = layout.lower_bound_bytes;
  arena_offsets_ = std::move(layout.tensors);
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].scratch_offset = static_cast<size_t>(layout.scratch[i]);
    steps_[i].is_done = layout.is_done[i];
  }
  if (parent != nullptr) {
    variables_ = parent->variables_;
  } else {
    for (const int64_t offset : layout.variables) variables_.push_back(arena_.data() + offset);
  }
  return Status();
}

// The loader refuses CALL_ONCE within a graph that CALL_ONCE names, so this ends.
Status Interpreter::CreateCallees() {
  std::vector<bool> is_called(model_->graphs().size());
  for (Step& step : steps_) {
    const auto* call = std::get_if<CallOnceOptions>(&graph().nodes[step.node].options);
    // Whoever comes first runs it.
    if (step.partition >= 0 || call == nullptr || is_called[call->subgraph]) continue;
    is_called[call->subgraph] = true;
    ATOLL_ASSIGN_OR_RETURN(
        step.callee, CreateFor(model_, model_->graphs()[call->subgraph], {.threads = 1}, this));
  }
  return Status();
}

void Interpreter::BindOperands() {
  for (Step& step : steps_) BindOperands(&step);
}

void Interpreter::BindOperands(Step* step) {
  const auto* variable = std::get_if<VariableOptions>(&graph().nodes[step->node].options);
  for (const int32_t tensor : step->input_tensors) {
    const bool is_state = tensor >= 0 && graph().tensors[tensor].is_variable;
    step->state.push_back(is_state ? TensorBytes(tensor).data() : nullptr);
  }
  if (step->partition < 0 && variable != nullptr) {
    step->state[0] = variables_[variable->variable];
  }
  for (const int32_t tensor : step->input_tensors) {
    step->inputs.push_back(tensor < 0 ? nullptr : ConstTensorBytes(tensor).data());
  }
  for (const int32_t tensor : step->output_tensors) {
    step->outputs.push_back(TensorBytes(tensor).data());
  }
}

// Gives the tensors between members memory, once. Without any, steps stay as they are, and nobody
// hears of these tensors.
void Interpreter::PrepareToListen() {
  if (!hidden_offsets_.empty()) return;
  std::vector<int64_t> offsets(graph().tensors.size(), -1);
  size_t bytes = 0;
  ForEachMember([&](const Step&, Step* member, bool is_last) {
    if (is_last) return;
    const int32_t tensor = member->output_tensors[0];
    offsets[tensor] = static_cast<int64_t>(bytes);
    bytes +=
        AlignUp(static_cast<uint64_t>(graph().tensors[tensor].byte_size()), Buffer::kAlignment);
  });
  Result<Buffer> buffer = Buffer::Allocate(bytes);
  if (!buffer.ok()) return;
  hidden_ = *std::move(buffer);
  hidden_offsets_ = std::move(offsets);
  ForEachMember([&](const Step& step, Step* member, bool) {
    member->scratch_offset = step.scratch_offset;
    BindOperands(member);
  });
}

bool Interpreter::RunsMembers(const Step& step) const {
  return !step.members.empty() && (tap_ || trace_) && !hidden_offsets_.empty();
}

void Interpreter::SetTap(Tap tap) {
  tap_ = std::move(tap);
  if (tap_) PrepareToListen();
}

void Interpreter::ResetVariables() {
  for (size_t i = 0; i < graph().tensors.size(); ++i) {
    const Tensor& tensor = graph().tensors[i];
    if (!tensor.is_variable) continue;
    const std::span<uint8_t> bytes = TensorBytes(static_cast<int32_t>(i));
    const int32_t fill = tensor.type == DataType::kInt8 ? tensor.zero_point() : 0;
    std::fill(bytes.begin(), bytes.end(), static_cast<uint8_t>(fill));
  }
  for (Step& step : steps_) {
    if (step.callee == nullptr) continue;
    step.callee->ResetVariables();
    step.called = false;
  }
}

// Where a tensor lies that is not constant; nullptr if it has no memory.
template <typename Self>
auto Interpreter::AddressOf(Self* self, int32_t tensor) -> decltype(self->arena_.data()) {
  if (!self->hidden_offsets_.empty() && self->hidden_offsets_[tensor] >= 0) {
    return self->hidden_.data() + self->hidden_offsets_[tensor];
  }
  if (self->arena_offsets_[tensor] < 0) return nullptr;
  return self->arena_.data() + self->arena_offsets_[tensor];
}

std::span<uint8_t> Interpreter::TensorBytes(int32_t tensor) {
  uint8_t* const data = AddressOf(this, tensor);
  if (data == nullptr) return {};
  return {data, static_cast<size_t>(graph().tensors[tensor].byte_size())};
}

std::span<const uint8_t> Interpreter::ConstTensorBytes(int32_t tensor) const {
  const Tensor& t = graph().tensors[tensor];
  if (t.is_constant()) return t.data.first(static_cast<size_t>(t.byte_size()));
  const uint8_t* const data = AddressOf(this, tensor);
  if (data == nullptr) return {};
  return {data, static_cast<size_t>(t.byte_size())};
}

std::vector<int32_t> Interpreter::PartitionOrder() const {
  std::vector<int32_t> order;
  for (const Step& step : steps_) {
    if (step.partition >= 0) order.push_back(step.partition);
  }
  return order;
}

void Interpreter::SetTrace(Trace trace) {
  trace_ = std::move(trace);
  if (trace_) PrepareToListen();
  trace_ ? pool_.StartRecording() : pool_.StopRecording();
}

// A node on the CPU that has just ended, and what other threads did for it.
void Interpreter::TraceNode(int32_t node, int64_t start_ns) {
  const std::string name = graph().nodes[node].op_name();
  TraceEvent event{.kind = TraceKind::kNode,
                   .name = name.c_str(),
                   .node = node,
                   .host = {.start_ns = start_ns, .duration_ns = MonotonicNs() - start_ns}};
  trace_(event);
  event.kind = TraceKind::kWorker;
  for (const ThreadPool::Span& span : pool_.TakeSpans()) {
    if (span.worker == 0) continue;
    event.host = {.thread = span.worker,
                  .start_ns = span.start_ns,
                  .duration_ns = span.end_ns - span.start_ns};
    trace_(event);
  }
}

Status Interpreter::RunStep(Step* step) {
  if (RunsMembers(*step)) {
    for (Step& member : step->members) ATOLL_RETURN_IF_ERROR(RunStep(&member));
    return Status();
  }
  DeviceUsage usage;
  Trace partition_trace;
  if (trace_ && step->partition >= 0) {
    partition_trace = [this, step](TraceEvent event) {
      event.partition = step->partition;
      trace_(event);
    };
  }
  const NodeIo io{.inputs = step->inputs,
                  .outputs = step->outputs,
                  .state = step->state,
                  .scratch = arena_.data() + step->scratch_offset,
                  .pool = step->is_small ? &caller_pool_ : &pool_,
                  .usage = &usage,
                  .trace = partition_trace ? &partition_trace : nullptr};
  const int64_t start_ns = trace_ ? MonotonicNs() : 0;
  if (step->callee != nullptr && !step->called) {
    ATOLL_RETURN_IF_ERROR(step->callee->RunSteps());
    step->called = true;
  }
  Status status = step->is_done ? Status() : step->executor->Invoke(io);
  if (!status.ok()) {
    // A partition's executor knows better what failed.
    if (step->partition >= 0) return status;
    return std::move(status).WithContext(Describe(graph(), graph().nodes[step->node]));
  }
  last_usage_.cycles += usage.cycles;
  last_usage_.bytes_to_device += usage.bytes_to_device;
  last_usage_.bytes_from_device += usage.bytes_from_device;
  last_usage_.seconds += usage.seconds;
  last_usage_.queue_ns += usage.queue_ns;
  last_usage_.link_out_ns += usage.link_out_ns;
  last_usage_.compute_ns += usage.compute_ns;
  last_usage_.link_in_ns += usage.link_in_ns;
  if (trace_ && step->partition < 0) TraceNode(step->node, start_ns);
  if (tap_) {
    for (const int32_t tensor : step->output_tensors) tap_(tensor);
  }
  return Status();
}

Status Interpreter::RunSteps() {
  for (Step& step : steps_) {
    if (cancelled_.load(std::memory_order_relaxed)) {
      return Status(StatusCode::kCancelled, "the invocation was cancelled");
    }
    ATOLL_RETURN_IF_ERROR(RunStep(&step));
  }
  return Status();
}

Status Interpreter::Invoke() {
  {
    const std::lock_guard lock(async_mutex_);
    invoking_ = true;
  }
  last_usage_ = {};
  if (fallback_ != nullptr) KeepInputs();
  Status status = RunSteps();
  if (status.code() == StatusCode::kDeviceLost && fallback_ != nullptr) {
    status = InvokeFallback(status);
  } else {
    on_fallback_ = false;
  }
  // Under the mutex, so that a Cancel comes before both or finds nothing to cancel; it must not
  // reach the next invocation.
  const std::lock_guard lock(async_mutex_);
  invoking_ = false;
  cancelled_ = false;
  return status;
}

void Interpreter::Cancel() {
  const std::lock_guard lock(async_mutex_);
  if (!invoking_ && async_state_ != AsyncState::kRequested) return;
  cancelled_ = true;
  for (Partition& partition : partitions_) partition.executor->Cancel();
}

Status Interpreter::InvokeAsync() {
  const std::lock_guard lock(async_mutex_);
  if (async_state_ != AsyncState::kIdle) {
    return InvalidArgument("an asynchronous invocation is in progress; call Wait first");
  }
  async_state_ = AsyncState::kRequested;
  if (!async_thread_.joinable()) async_thread_ = std::thread([this] { AsyncLoop(); });
  async_changed_.notify_all();
  return Status();
}

Status Interpreter::Wait() {
  std::unique_lock lock(async_mutex_);
  if (async_state_ == AsyncState::kIdle) {
    return InvalidArgument("no asynchronous invocation is in progress");
  }
  async_changed_.wait(lock, [this] { return async_state_ == AsyncState::kDone; });
  async_state_ = AsyncState::kIdle;
  return std::move(async_status_);
}

void Interpreter::AsyncLoop() {
  std::unique_lock lock(async_mutex_);
  for (;;) {
    async_changed_.wait(lock,
                        [this] { return async_stop_ || async_state_ == AsyncState::kRequested; });
    if (async_state_ != AsyncState::kRequested) return;
    async_state_ = AsyncState::kRunning;
    invoking_ = true;
    lock.unlock();
    Status status = Invoke();
    lock.lock();
    async_status_ = std::move(status);
    async_state_ = AsyncState::kDone;
    async_changed_.notify_all();
  }
}

}  // namespace atollrt
