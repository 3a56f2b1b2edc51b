// SPDX-License-Identifier: Apache-2.0
#include "runtime/interpreter.h"

#include <algorithm>
#include <chrono>

#include "runtime/base/bytes.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/memory_planner.h"
#include "runtime/ops/cpu_ops.h"

namespace atollrt {
namespace {

constexpr int kMaxDefaultThreads = 4;

int ThreadCount(int requested) {
  if (requested > 0) return requested;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores, 1, kMaxDefaultThreads);
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Interpreter::Interpreter(std::shared_ptr<const Model> model, int threads)
    : model_(std::move(model)), pool_(threads) {}

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
  std::unique_ptr<Interpreter> interpreter(
      new Interpreter(std::move(model), ThreadCount(options.threads)));
  ATOLL_RETURN_IF_ERROR(interpreter->Plan(options.delegate));
  ATOLL_RETURN_IF_ERROR(interpreter->PrepareSteps());
  ATOLL_RETURN_IF_ERROR(interpreter->OrderSteps());
  ATOLL_RETURN_IF_ERROR(interpreter->AllocateArena());
  interpreter->BindOperands();
  return interpreter;
}

Status Interpreter::Plan(Delegate* delegate) {
  placements_.resize(graph().nodes.size());
  if (delegate == nullptr) return Status();
  ATOLL_ASSIGN_OR_RETURN(DelegatePlan plan, delegate->Plan(graph()));
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

// One step per CPU node and one per partition (at the place of its first node, for now).
Status Interpreter::PrepareSteps() {
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
      ATOLL_ASSIGN_OR_RETURN(step.owned, PrepareCpuNode(graph(), node, features));
      step.executor = step.owned.get();
      step.input_tensors = node.inputs;
      step.output_tensors = node.outputs;
    }
    steps_.push_back(std::move(step));
  }
  return Status();
}

// Stable topological order: a partition can only run when everything outside that it reads has
// been written.
Status Interpreter::OrderSteps() {
  const Graph& g = graph();
  std::vector<bool> ready(g.tensors.size());
  for (size_t i = 0; i < ready.size(); ++i) {
    const Tensor& tensor = g.tensors[i];
    ready[i] = tensor.is_constant() || tensor.is_variable || tensor.element_count() == 0;
  }
  for (const int32_t input : g.inputs) ready[input] = true;
  std::vector<Step> ordered;
  std::vector<bool> done(steps_.size());
  while (ordered.size() < steps_.size()) {
    const size_t before = ordered.size();
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (done[i]) continue;
      const std::vector<int32_t>& inputs = steps_[i].input_tensors;
      if (!std::all_of(inputs.begin(), inputs.end(),
                       [&](int32_t tensor) { return tensor < 0 || ready[tensor]; })) {
        continue;
      }
      done[i] = true;
      for (const int32_t tensor : steps_[i].output_tensors) ready[tensor] = true;
      ordered.push_back(std::move(steps_[i]));
    }
    if (ordered.size() == before) return InternalError("the partitions form a cycle");
  }
  steps_ = std::move(ordered);
  return Status();
}

Status Interpreter::AllocateArena() {
  const Graph& g = graph();
  const int32_t last_step = static_cast<int32_t>(steps_.size());
  // A block per tensor, then one of scratch per step. Unused tensors keep size 0.
  std::vector<MemoryBlock> blocks(g.tensors.size() + steps_.size());
  const auto touch = [&](int32_t tensor, int32_t step) {
    if (tensor < 0 || g.tensors[tensor].is_constant()) return;
    MemoryBlock& block = blocks[tensor];
    if (block.size == 0) {
      block.size = g.tensors[tensor].byte_size();
      block.first_use = step;
    }
    block.last_use = std::max(block.last_use, step);
  };
  for (const int32_t tensor : g.inputs) {
    // Callers may fill inputs once and invoke many times, so nothing else may use their memory.
    touch(tensor, 0);
    touch(tensor, last_step);
  }
  for (int32_t i = 0; i < last_step; ++i) {
    for (const int32_t tensor : steps_[i].output_tensors) touch(tensor, i);
    for (const int32_t tensor : steps_[i].input_tensors) touch(tensor, i);
    blocks[g.tensors.size() + i] = {
        .size = static_cast<int64_t>(steps_[i].executor->ScratchBytes(pool_.threads())),
        .first_use = i,
        .last_use = i};
  }
  for (const int32_t tensor : g.outputs) touch(tensor, last_step);

  const MemoryPlan plan = PlanMemory(blocks, Buffer::kAlignment);
  if (plan.total > int64_t{4} << 30) {
    return ResourceExhausted("the model needs %lld bytes for its intermediate tensors",
                             static_cast<long long>(plan.total));
  }
  ATOLL_ASSIGN_OR_RETURN(arena_, Buffer::Allocate(static_cast<size_t>(plan.total)));
  arena_offsets_.assign(g.tensors.size(), -1);
  for (size_t i = 0; i < g.tensors.size(); ++i) {
    if (blocks[i].size > 0) arena_offsets_[i] = plan.offsets[i];
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].scratch_offset = static_cast<size_t>(plan.offsets[g.tensors.size() + i]);
  }
  return Status();
}

void Interpreter::BindOperands() {
  for (Step& step : steps_) {
    for (const int32_t tensor : step.input_tensors) {
      step.inputs.push_back(tensor < 0 ? nullptr : ConstTensorBytes(tensor).data());
    }
    for (const int32_t tensor : step.output_tensors) {
      step.outputs.push_back(TensorBytes(tensor).data());
    }
  }
}

std::span<uint8_t> Interpreter::TensorBytes(int32_t tensor) {
  if (arena_offsets_[tensor] < 0) return {};
  return {arena_.data() + arena_offsets_[tensor],
          static_cast<size_t>(graph().tensors[tensor].byte_size())};
}

std::span<const uint8_t> Interpreter::ConstTensorBytes(int32_t tensor) const {
  const Tensor& t = graph().tensors[tensor];
  if (t.is_constant()) return t.data.first(static_cast<size_t>(t.byte_size()));
  if (arena_offsets_[tensor] < 0) return {};
  return {arena_.data() + arena_offsets_[tensor], static_cast<size_t>(t.byte_size())};
}

Status Interpreter::RunStep(Step* step) {
  DeviceUsage usage;
  const NodeIo io{.inputs = step->inputs,
                  .outputs = step->outputs,
                  .scratch = arena_.data() + step->scratch_offset,
                  .pool = &pool_,
                  .usage = &usage};
  const int64_t start = trace_ ? NowNs() : 0;
  ATOLL_RETURN_IF_ERROR(step->executor->Invoke(io));
  last_usage_.cycles += usage.cycles;
  last_usage_.bytes_to_device += usage.bytes_to_device;
  last_usage_.bytes_from_device += usage.bytes_from_device;
  last_usage_.seconds += usage.seconds;
  if (trace_) {
    trace_({.name = step->partition >= 0 ? "partition " + std::to_string(step->partition)
                                         : graph().nodes[step->node].op_name(),
            .partition = step->partition,
            .first_node = step->node,
            .start_ns = start,
            .duration_ns = NowNs() - start,
            .usage = usage});
  }
  if (tap_) {
    for (const int32_t tensor : step->output_tensors) tap_(tensor);
  }
  return Status();
}

Status Interpreter::Invoke() {
  {
    const std::lock_guard lock(async_mutex_);
    invoking_ = true;
  }
  last_usage_ = {};
  Status status;
  for (Step& step : steps_) {
    if (cancelled_.load(std::memory_order_relaxed)) {
      status = Status(StatusCode::kCancelled, "the invocation was cancelled");
      break;
    }
    status = RunStep(&step);
    if (!status.ok()) break;
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
