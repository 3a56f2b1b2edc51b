// SPDX-License-Identifier: Apache-2.0
//
// Interpreter: prepares a model once, invokes it many times. Preparation plans the steps
// (plan/step_plan.h) and gives them memory (step_walker.h); this class adds what several threads
// and lost devices ask for: asynchronous invocations, their end before time, and another model that
// completes them.
//
// Thread safety: one caller at a time, except Cancel, which any thread may call.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "atoll/status.h"
#include "runtime/model.h"
#include "runtime/plan/delegate.h"
#include "runtime/step_walker.h"

namespace atollrt {

struct InterpreterOptions {
  int threads = 0;               // 0: as many as cores that it may use (host_cpus.h), at most 4
  Delegate* delegate = nullptr;  // outlives the interpreter
  PlanOptions plan = {};         // for the delegate
  // Does on the CPU what the model does, with inputs and outputs of the same types and shapes:
  // invocations that fail with kDeviceLost complete on it. For models that run on one device only.
  std::shared_ptr<const Model> fallback = nullptr;
  // Intermediate tensors keep their bytes until the next invocation, but for those inside
  // partitions. Takes more memory and more time.
  bool keep_all_tensors = false;
};

class Interpreter {
 public:
  static Result<std::unique_ptr<Interpreter>> Create(std::shared_ptr<const Model> model,
                                                     const InterpreterOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Allocates nothing. After an error the contents of the outputs are unspecified.
  Status Invoke();
  // Makes the next invocation like the first one (step_walker.h).
  void ResetVariables() { walker_->ResetVariables(); }
  // Runs Invoke on a thread of this interpreter's; exactly one Wait follows.
  Status InvokeAsync();
  Status Wait();
  // Makes the Invoke in progress end with kCancelled if it still can: before its next step, or
  // while it waits for a device. A step of the CPU runs to its end.
  void Cancel();

  const Graph& graph() const { return walker_->graph(); }
  // The bytes of a tensor: constants in the model, inputs, outputs and intermediates in the arena
  // (which reuses the memory of intermediates); empty for tensors inside partitions.
  std::span<uint8_t> TensorBytes(int32_t tensor) { return walker_->TensorBytes(tensor); }
  std::span<const uint8_t> ConstTensorBytes(int32_t tensor) const {
    return std::as_const(*walker_).ConstTensorBytes(tensor);
  }

  const std::vector<NodePlacement>& placements() const { return walker_->plan().placements; }
  const std::vector<Partition>& partitions() const { return walker_->plan().partitions; }
  // Indices of the partitions in the order in which Invoke runs them.
  std::vector<int32_t> PartitionOrder() const;
  // Memory of its own, and what no plan of the arena can go below.
  int64_t arena_bytes() const { return walker_->arena_bytes(); }
  int64_t arena_lower_bound_bytes() const { return walker_->arena_lower_bound_bytes(); }
  // Bytes of Tensor::packed_weights that kernels use where they lie.
  int64_t used_packed_weight_bytes() const { return walker_->plan().used_packed_weight_bytes; }
  // What the partitions of the last invocation cost together.
  const RequestCost& last_cost() const { return walker_->cost(); }

  // Inputs and outputs in memory of others (step_walker.h), which stays where it is until it is
  // replaced. The delegate gets it ready, all of `whole` if that is a memfd; `for_device`: or else
  // its error is given, and the tensor lies in the arena.
  Status SetTensorMemory(int32_t tensor, std::span<uint8_t> bytes, std::shared_ptr<void> owner,
                         bool for_device = false, const HostMemory& whole = {{}});

  // Listeners: step_walker.h.
  void SetTap(StepWalker::Tap tap) { walker_->SetTap(std::move(tap)); }
  void SetTrace(Trace trace) { walker_->SetTrace(std::move(trace)); }

 private:
  explicit Interpreter(std::unique_ptr<StepWalker> walker);
  Status PrepareFallback(const InterpreterOptions& options);
  void KeepInputs();
  Status InvokeFallback(const Status& reason);
  Status Register(const HostMemory& memory, std::span<uint8_t>* registered);
  void AsyncLoop();

  const std::unique_ptr<StepWalker> walker_;
  Delegate* delegate_ = nullptr;  // if it has taken something
  // What it was told of: memory of others by tensor, and behind that the arena.
  std::vector<std::span<uint8_t>> registered_;
  std::unique_ptr<Interpreter> fallback_;  // nullptr: none
  bool on_fallback_ = false;               // the last invocation was
  bool invoking_ = false;                  // guarded by async_mutex_

  // The asynchronous invocation; its thread starts with the first one.
  enum class AsyncState { kIdle, kRequested, kRunning, kDone };
  std::mutex async_mutex_;
  std::condition_variable async_changed_;
  AsyncState async_state_ = AsyncState::kIdle;
  bool async_stop_ = false;
  Status async_status_;
  std::thread async_thread_;
};

}  // namespace atollrt
