// SPDX-License-Identifier: Apache-2.0
#include "runtime/interpreter.h"

#include <algorithm>

#include "runtime/base/host_cpus.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr int kMaxDefaultThreads = 4;

int ThreadCount(int requested) {
  if (requested > 0) return requested;
  return std::min(GetHostCpus().cores, kMaxDefaultThreads);
}

}  // namespace

Interpreter::Interpreter(std::unique_ptr<StepWalker> walker) : walker_(std::move(walker)) {}

Interpreter::~Interpreter() {
  {
    const std::lock_guard lock(async_mutex_);
    async_stop_ = true;
  }
  async_changed_.notify_all();
  if (async_thread_.joinable()) async_thread_.join();
  for (std::span<uint8_t>& one : registered_) (void)Register({{}}, &one).ok();
}

Result<std::unique_ptr<Interpreter>> Interpreter::Create(std::shared_ptr<const Model> model,
                                                         const InterpreterOptions& options) {
  if (options.threads < 0 || options.threads > 256) {
    return InvalidArgument("%d threads; must be 0 (default) to 256", options.threads);
  }
  ATOLL_ASSIGN_OR_RETURN(const CpuFeatures features, DetectCpuFeatures());
  auto pool = std::make_unique<ThreadPool>(ThreadCount(options.threads));
  const PlanHost host = {
      .features = features,
      .pool = pool.get(),
      .weights_read = [&model](std::span<const uint8_t> bytes) { model->DropPages(bytes); }};
  ATOLL_ASSIGN_OR_RETURN(StepPlan plan,
                         PlanSteps(model->graph(), model->bytes().size(), options.delegate,
                                   options.plan, host, options.keep_all_tensors));
  plan.shares_arena = !plan.partitions.empty() && options.delegate->wants_shared_memory();
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<StepWalker> walker,
                         StepWalker::Create(model, std::move(plan), features, std::move(pool)));
  std::unique_ptr<Interpreter> interpreter(new Interpreter(std::move(walker)));
  if (!interpreter->walker_->plan().partitions.empty()) {
    interpreter->delegate_ = options.delegate;
    // What it does not reach it copies.
    interpreter->registered_.resize(model->graph().tensors.size() + 1);
    (void)interpreter->Register(interpreter->walker_->arena(), &interpreter->registered_.back())
        .ok();
  }
  // Kernels and programs have packed most weights, the last of which would else be there twice.
  model->DropPages(model->bytes());
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
  walker_->CopyOut();
  return Status();
}

// In the place of what was registered there.
Status Interpreter::Register(const HostMemory& memory, std::span<uint8_t>* registered) {
  // The other parts of a file need not be told of again: its owner is still here.
  if (memory.memfd >= 0 && memory.bytes.data() == registered->data()) return {};
  // First, as the same addresses may be other memory now.
  if (!registered->empty()) delegate_->UnregisterMemory(*registered);
  *registered = {};
  Status status = memory.bytes.empty() ? Status() : delegate_->RegisterMemory(memory);
  if (status.ok()) *registered = memory.bytes;
  return status;
}

Status Interpreter::SetTensorMemory(int32_t tensor, std::span<uint8_t> bytes,
                                    std::shared_ptr<void> owner, bool for_device,
                                    const HostMemory& whole) {
  if (delegate_ != nullptr) {
    Status status = Register(whole.memfd >= 0 ? whole : HostMemory(bytes),
                             &registered_[static_cast<size_t>(tensor)]);
    if (!status.ok() && for_device) {
      ATOLL_RETURN_IF_ERROR(walker_->SetTensorMemory(tensor, {}, {}));
      return status;
    }
  }
  return walker_->SetTensorMemory(tensor, bytes, std::move(owner));
}

std::vector<int32_t> Interpreter::PartitionOrder() const {
  std::vector<int32_t> order;
  for (const Step& step : walker_->plan().steps) {
    if (step.partition >= 0) order.push_back(step.partition);
  }
  return order;
}

Status Interpreter::Invoke() {
  {
    const std::lock_guard lock(async_mutex_);
    invoking_ = true;
  }
  walker_->CopyIn();
  if (fallback_ != nullptr) KeepInputs();
  Status status = walker_->Run();
  if (status.ok()) walker_->CopyOut();
  if (status.code() == StatusCode::kDeviceLost && fallback_ != nullptr) {
    status = InvokeFallback(status);
  } else {
    on_fallback_ = false;
  }
  // Under the mutex, so that a Cancel comes before both or finds nothing to cancel; it must not
  // reach the next invocation.
  const std::lock_guard lock(async_mutex_);
  invoking_ = false;
  walker_->ForgetCancel();
  return status;
}

void Interpreter::Cancel() {
  const std::lock_guard lock(async_mutex_);
  if (!invoking_ && async_state_ != AsyncState::kRequested) return;
  walker_->Cancel();
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
