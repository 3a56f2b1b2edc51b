// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_walker.h"

#include <algorithm>

#include "runtime/base/bytes.h"
#include "runtime/base/monotonic.h"
#include "runtime/plan/arena_layout.h"

namespace atollrt {

StepWalker::StepWalker(std::shared_ptr<const Model> model, const Graph& graph, StepPlan plan,
                       std::unique_ptr<ThreadPool> pool)
    : model_(std::move(model)),
      graph_(graph),
      plan_(std::move(plan)),
      pool_(std::move(pool)),
      caller_pool_(1) {}

Result<std::unique_ptr<StepWalker>> StepWalker::Create(std::shared_ptr<const Model> model,
                                                       StepPlan plan, CpuFeatures features,
                                                       std::unique_ptr<ThreadPool> pool) {
  const Graph& graph = model->graph();
  ATOLL_ASSIGN_OR_RETURN(
      std::unique_ptr<StepWalker> walker,
      CreateFor(std::move(model), graph, std::move(plan), features, std::move(pool),
                /*parent=*/nullptr));
  walker->ResetVariables();
  return walker;
}

Result<std::unique_ptr<StepWalker>> StepWalker::CreateFor(std::shared_ptr<const Model> model,
                                                          const Graph& graph, StepPlan plan,
                                                          CpuFeatures features,
                                                          std::unique_ptr<ThreadPool> pool,
                                                          StepWalker* parent) {
  std::unique_ptr<StepWalker> walker(
      new StepWalker(std::move(model), graph, std::move(plan), std::move(pool)));
  for (const Step& step : walker->plan_.steps) walker->steps_.push_back(Unbound(step));
  ATOLL_RETURN_IF_ERROR(walker->AllocateArena(parent));
  ATOLL_RETURN_IF_ERROR(walker->CreateCallees(features));
  walker->BindAll();
  return walker;
}

StepWalker::BoundStep StepWalker::Unbound(const Step& step) {
  BoundStep bound;
  bound.step = &step;
  for (const Step& member : step.members) bound.members.push_back(Unbound(member));
  return bound;
}

Status StepWalker::AllocateArena(const StepWalker* parent) {
  const auto scratch_bytes = [&](const auto& self, const Step& step) -> size_t {
    size_t bytes = step.executor->ScratchBytes(pool_->threads());
    for (const Step& member : step.members) bytes = std::max(bytes, self(self, member));
    return bytes;
  };
  std::vector<StepMemory> memory;
  for (const Step& step : plan_.steps) {
    const bool is_node = step.partition < 0 && step.members.empty();
    memory.push_back({.node = is_node ? &graph_.nodes[step.node] : nullptr,
                      .inputs = step.inputs,
                      .outputs = step.outputs,
                      .scratch_bytes = static_cast<int64_t>(scratch_bytes(scratch_bytes, step))});
  }
  const std::span<const Variable> variables =
      parent == nullptr ? std::span(model_->variables()) : std::span<const Variable>();
  ArenaLayout layout = LayOutArena(graph_, memory, variables, plan_.keeps_all_tensors);
  if (layout.total_bytes > int64_t{4} << 30) {
    return ResourceExhausted("the model needs %lld bytes for its intermediate tensors",
                             static_cast<long long>(layout.total_bytes));
  }
  const auto arena_bytes = static_cast<size_t>(layout.total_bytes);
  ATOLL_ASSIGN_OR_RETURN(arena_, plan_.shares_arena ? Buffer::AllocateShared(arena_bytes)
                                                    : Buffer::Allocate(arena_bytes));
  arena_lower_bound_bytes_ = layout.lower_bound_bytes;
  arena_offsets_ = std::move(layout.tensors);
  blocks_ = std::move(layout.blocks);
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
Status StepWalker::CreateCallees(CpuFeatures features) {
  std::vector<bool> is_called(model_->graphs().size());
  for (BoundStep& bound : steps_) {
    const auto* call = std::get_if<CallOnceOptions>(&graph_.nodes[bound.step->node].options);
    // Whoever comes first runs it.
    if (bound.step->partition >= 0 || call == nullptr || is_called[call->subgraph]) continue;
    is_called[call->subgraph] = true;
    const Graph& graph = model_->graphs()[call->subgraph];
    ATOLL_ASSIGN_OR_RETURN(StepPlan plan,
                           PlanSteps(graph, model_->bytes().size(),
                                     /*delegate=*/nullptr, {}, {.features = features}));
    ATOLL_ASSIGN_OR_RETURN(bound.callee, CreateFor(model_, graph, std::move(plan), features,
                                                   std::make_unique<ThreadPool>(1), this));
  }
  return Status();
}

void StepWalker::BindAll() {
  for (BoundStep& bound : steps_) BindWithMembers(&bound);
}

void StepWalker::BindUsersOf(int32_t tensor) {
  const auto moves = [&](int32_t other) { return other >= 0 && blocks_[other] == blocks_[tensor]; };
  for (BoundStep& bound : steps_) {
    if (std::ranges::any_of(bound.step->inputs, moves) ||
        std::ranges::any_of(bound.step->outputs, moves)) {
      BindWithMembers(&bound);
    }
  }
}

void StepWalker::BindWithMembers(BoundStep* bound) {
  BindOperands(bound);
  // Members have memory for what lies between them only once somebody listens.
  if (hidden_offsets_.empty()) return;
  for (BoundStep& member : bound->members) BindWithMembers(&member);
}

void StepWalker::BindOperands(BoundStep* bound) {
  const Step& step = *bound->step;
  const auto* variable = std::get_if<VariableOptions>(&graph_.nodes[step.node].options);
  bound->inputs.clear();
  bound->outputs.clear();
  bound->state.clear();
  for (const int32_t tensor : step.inputs) {
    const bool is_state = tensor >= 0 && graph_.tensors[tensor].is_variable;
    bound->state.push_back(is_state ? TensorBytes(tensor).data() : nullptr);
    bound->inputs.push_back(tensor < 0 ? nullptr : ConstTensorBytes(tensor).data());
  }
  if (step.partition < 0 && variable != nullptr) {
    bound->state[0] = variables_[variable->variable];
  }
  for (const int32_t tensor : step.outputs) bound->outputs.push_back(TensorBytes(tensor).data());
}

// Gives the tensors between members memory, once. Without any, steps stay as they are, and nobody
// hears of these tensors.
void StepWalker::PrepareToListen() {
  if (!hidden_offsets_.empty()) return;
  const auto for_each_member = [this](const auto& function) {
    const auto visit = [&](const auto& self, const BoundStep& step, BoundStep* of) -> void {
      for (BoundStep& member : of->members) {
        function(step, &member, &member == &of->members.back());
        self(self, step, &member);
      }
    };
    for (BoundStep& bound : steps_) visit(visit, bound, &bound);
  };
  std::vector<int64_t> offsets(graph_.tensors.size(), -1);
  size_t bytes = 0;
  for_each_member([&](const BoundStep&, BoundStep* member, bool is_last) {
    if (is_last) return;
    const int32_t tensor = member->step->outputs[0];
    offsets[tensor] = static_cast<int64_t>(bytes);
    bytes += AlignUp(static_cast<uint64_t>(graph_.tensors[tensor].byte_size()), Buffer::kAlignment);
  });
  Result<Buffer> buffer = Buffer::Allocate(bytes);
  if (!buffer.ok()) return;
  hidden_ = *std::move(buffer);
  hidden_offsets_ = std::move(offsets);
  for_each_member([&](const BoundStep& step, BoundStep* member, bool) {
    member->scratch_offset = step.scratch_offset;
    BindOperands(member);
  });
}

bool StepWalker::RunsMembers(const BoundStep& bound) const {
  return !bound.members.empty() && (tap_ || trace_) && !hidden_offsets_.empty();
}

void StepWalker::SetTap(Tap tap) {
  tap_ = std::move(tap);
  if (tap_) PrepareToListen();
}

void StepWalker::SetTrace(Trace trace) {
  trace_ = std::move(trace);
  if (trace_) PrepareToListen();
  trace_ ? pool_->StartRecording() : pool_->StopRecording();
}

void StepWalker::ResetVariables() {
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& tensor = graph_.tensors[i];
    if (!tensor.is_variable) continue;
    const std::span<uint8_t> bytes = TensorBytes(static_cast<int32_t>(i));
    const int32_t fill = tensor.type == DataType::kInt8 ? tensor.zero_point() : 0;
    std::ranges::fill(bytes, static_cast<uint8_t>(fill));
  }
  for (BoundStep& bound : steps_) {
    if (bound.callee == nullptr) continue;
    bound.callee->ResetVariables();
    bound.called = false;
  }
}

// Where a tensor lies that is not constant; nullptr if it has no memory.
template <typename Self>
auto StepWalker::AddressOf(Self* self, int32_t tensor) -> decltype(self->arena_.data()) {
  for (const Outside& outside : self->outside_) {
    if (!outside.in_place || self->arena_offsets_[tensor] < 0 ||
        self->blocks_[tensor] != self->blocks_[outside.tensor]) {
      continue;
    }
    // With it goes all that shares its block, which lies within it.
    return outside.bytes.data() + self->arena_offsets_[tensor] -
           self->arena_offsets_[outside.tensor];
  }
  if (!self->hidden_offsets_.empty() && self->hidden_offsets_[tensor] >= 0) {
    return self->hidden_.data() + self->hidden_offsets_[tensor];
  }
  if (self->arena_offsets_[tensor] < 0) return nullptr;
  return self->arena_.data() + self->arena_offsets_[tensor];
}

std::span<uint8_t> StepWalker::TensorBytes(int32_t tensor) {
  uint8_t* const data = AddressOf(this, tensor);
  if (data == nullptr) return {};
  return {data, static_cast<size_t>(graph_.tensors[tensor].byte_size())};
}

std::span<const uint8_t> StepWalker::ConstTensorBytes(int32_t tensor) const {
  const Tensor& t = graph_.tensors[tensor];
  if (t.is_constant()) return t.data.first(static_cast<size_t>(t.byte_size()));
  const uint8_t* const data = AddressOf(this, tensor);
  if (data == nullptr) return {};
  return {data, static_cast<size_t>(t.byte_size())};
}

// A node on the CPU that has just ended, and what other threads did for it.
void StepWalker::TraceNode(int32_t node, int64_t start_ns) {
  const std::string name = graph_.nodes[node].op_name();
  TraceEvent event{.kind = TraceKind::kNode,
                   .name = name.c_str(),
                   .node = node,
                   .host = {.start_ns = start_ns, .duration_ns = MonotonicNs() - start_ns}};
  trace_(event);
  event.kind = TraceKind::kWorker;
  for (const ThreadPool::Span& span : pool_->TakeSpans()) {
    if (span.worker == 0) continue;
    event.host = {.thread = span.worker,
                  .start_ns = span.start_ns,
                  .duration_ns = span.end_ns - span.start_ns};
    trace_(event);
  }
}

Status StepWalker::RunStep(BoundStep* bound) {
  if (RunsMembers(*bound)) {
    for (BoundStep& member : bound->members) ATOLL_RETURN_IF_ERROR(RunStep(&member));
    return Status();
  }
  const Step& step = *bound->step;
  Trace partition_trace;
  if (trace_ && step.partition >= 0) {
    partition_trace = [this, &step](TraceEvent event) {
      event.partition = step.partition;
      trace_(event);
    };
  }
  RequestCost cost;
  const NodeIo io{.inputs = bound->inputs,
                  .outputs = bound->outputs,
                  .state = bound->state,
                  .scratch = arena_.data() + bound->scratch_offset,
                  .pool = step.is_small ? &caller_pool_ : pool_.get(),
                  .cost = &cost,
                  .trace = partition_trace ? &partition_trace : nullptr};
  const int64_t start_ns = trace_ ? MonotonicNs() : 0;
  if (bound->callee != nullptr && !bound->called) {
    ATOLL_RETURN_IF_ERROR(bound->callee->Run());
    bound->called = true;
  }
  Status status = bound->is_done ? Status() : step.executor->Invoke(io);
  if (!status.ok()) {
    // A partition's executor knows better what failed.
    if (step.partition >= 0) return status;
    return std::move(status).WithContext(Describe(graph_, graph_.nodes[step.node]));
  }
  cost_ += cost;
  if (trace_ && step.partition < 0) TraceNode(step.node, start_ns);
  if (tap_) {
    for (const int32_t tensor : step.outputs) tap_(tensor);
  }
  return Status();
}

// Whether the steps can use `data` in place of the tensor's memory in the arena: it is aligned, and
// whatever else has bytes in the tensor's block has them within it.
bool StepWalker::MayLieOutside(int32_t tensor, const uint8_t* data) const {
  const Tensor& t = graph_.tensors[tensor];
  if (arena_offsets_[tensor] < 0 || reinterpret_cast<uintptr_t>(data) % DataTypeSize(t.type) != 0) {
    return false;
  }
  const int64_t begin = arena_offsets_[tensor], end = begin + t.byte_size();
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    if (arena_offsets_[i] < 0 || blocks_[i] != blocks_[tensor]) continue;
    if (arena_offsets_[i] < begin || arena_offsets_[i] + graph_.tensors[i].byte_size() > end) {
      return false;
    }
    // Of two that share a block, neither can say where it lies.
    for (const Outside& other : outside_) {
      if (other.in_place && other.tensor == static_cast<int32_t>(i) && other.tensor != tensor) {
        return false;
      }
    }
  }
  return true;
}

Status StepWalker::SetTensorMemory(int32_t tensor, std::span<uint8_t> bytes,
                                   std::shared_ptr<void> owner) {
  const auto is_end = [tensor](const std::vector<int32_t>& ends) {
    return std::ranges::find(ends, tensor) != ends.end();
  };
  if (!is_end(graph_.inputs) && !is_end(graph_.outputs)) {
    return InvalidArgument("%s is neither an input nor an output",
                           Describe(graph_, tensor).c_str());
  }
  const auto size = static_cast<size_t>(graph_.tensors[tensor].byte_size());
  if (!bytes.empty() && bytes.size() != size) {
    return InvalidArgument("%s has %zu bytes, not %zu", Describe(graph_, tensor).c_str(), size,
                           bytes.size());
  }
  std::erase_if(outside_, [tensor](const Outside& other) { return other.tensor == tensor; });
  if (!bytes.empty()) {
    const bool in_place = MayLieOutside(tensor, bytes.data());
    outside_.push_back({tensor, bytes, std::move(owner), in_place});
  }
  BindUsersOf(tensor);
  return Status();
}

Status StepWalker::Run() {
  cost_ = {};
  for (BoundStep& bound : steps_) {
    if (cancelled_.load(std::memory_order_relaxed)) {
      return Status(StatusCode::kCancelled, "the invocation was cancelled");
    }
    ATOLL_RETURN_IF_ERROR(RunStep(&bound));
  }
  return Status();
}

void StepWalker::CopyIn() {
  for (const Outside& outside : outside_) {
    const bool is_input = std::ranges::find(graph_.inputs, outside.tensor) != graph_.inputs.end();
    if (outside.in_place || !is_input) continue;
    std::ranges::copy(outside.bytes, TensorBytes(outside.tensor).begin());
  }
}

void StepWalker::CopyOut() {
  for (const Outside& outside : outside_) {
    if (outside.in_place ||
        std::ranges::find(graph_.outputs, outside.tensor) == graph_.outputs.end()) {
      continue;
    }
    std::ranges::copy(std::as_const(*this).ConstTensorBytes(outside.tensor), outside.bytes.begin());
  }
}

void StepWalker::Cancel() {
  cancelled_ = true;
  for (const Partition& partition : plan_.partitions) partition.executor->Cancel();
}

}  // namespace atollrt
