// SPDX-License-Identifier: Apache-2.0
//
// Interpreter: prepares a model once, invokes it many times. Preparation asks the delegate which
// partitions it takes, binds every other node to a CPU kernel, orders both into steps and plans
// one arena for all intermediate tensors; Invoke then walks the steps and allocates nothing.
//
// What outlasts an invocation (variable tensors, the model's variables) lies in the arena, too,
// where nothing else uses its memory. A graph that CALL_ONCE names is an interpreter of its own
// that shares the variables.
//
// Thread safety: one caller at a time, except Cancel, which any thread may call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/base/status.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model.h"
#include "runtime/node_executor.h"

namespace atollrt {

struct InterpreterOptions {
  int threads = 0;               // 0: as many as cores that it may use (host_cpus.h), at most 4
  Delegate* delegate = nullptr;  // outlives the interpreter
  PlanOptions plan = {};         // for the delegate
  // Does on the CPU what the model does, with inputs and outputs of the same types and shapes:
  // invocations that fail with kDeviceLost complete on it. For models that run on one device only.
  std::shared_ptr<const Model> fallback = nullptr;
};

// Where a node runs. `partition` is -1 on the CPU.
struct NodePlacement {
  int32_t partition = -1;
  std::string reason;  // why the delegate did not take it; empty without a delegate
};

class Interpreter {
 public:
  static Result<std::unique_ptr<Interpreter>> Create(std::shared_ptr<const Model> model,
                                                     const InterpreterOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Status Invoke();
  // As after Create: variable tensors hold their zero point (int8) or 0, no variable is assigned,
  // and CALL_ONCE will run again.
  void ResetVariables();
  // Runs Invoke on a thread of this interpreter's; exactly one Wait follows.
  Status InvokeAsync();
  Status Wait();
  // Makes the Invoke in progress end with kCancelled if it still can.
  void Cancel();

  const Graph& graph() const { return graph_; }
  // The bytes of a tensor: constants in the model, inputs, outputs and intermediates in the arena
  // (which reuses the memory of intermediates); empty for tensors inside partitions.
  std::span<uint8_t> TensorBytes(int32_t tensor);
  std::span<const uint8_t> ConstTensorBytes(int32_t tensor) const;

  const std::vector<NodePlacement>& placements() const { return placements_; }
  const std::vector<Partition>& partitions() const { return partitions_; }
  // Their indices in the order in which Invoke runs them.
  std::vector<int32_t> PartitionOrder() const;
  int64_t arena_bytes() const { return static_cast<int64_t>(arena_.size()); }
  // What no plan of the arena can go below.
  int64_t arena_lower_bound_bytes() const { return arena_lower_bound_bytes_; }
  // Of Tensor::packed_weights, those that kernels use where they lie.
  int64_t used_packed_weight_bytes() const { return used_packed_weight_bytes_; }
  const DeviceUsage& last_usage() const { return last_usage_; }

  // Called on the invoking thread for each tensor that a step has written.
  using Tap = std::function<void(int32_t tensor)>;
  void SetTap(Tap tap);
  // Called for everything that takes time, at the end of the step that it belongs to; between
  // invocations, nullptr ends it.
  void SetTrace(Trace trace);

 private:
  // One executor with its operands bound to memory.
  struct Step {
    std::unique_ptr<NodeExecutor> owned;  // CPU nodes; partitions own theirs
    NodeExecutor* executor = nullptr;
    int32_t node = 0;  // the (first) node
    int32_t partition = -1;
    std::vector<int32_t> input_tensors;
    std::vector<int32_t> output_tensors;
    std::vector<const uint8_t*> inputs;
    std::vector<uint8_t*> outputs;
    std::vector<uint8_t*> state;
    size_t scratch_offset = 0;
    bool is_small = false;                // not worth a second thread
    bool is_done = false;                 // by the places of its operands (arena_layout.h)
    std::unique_ptr<Interpreter> callee;  // CALL_ONCE
    bool called = false;
    // Steps that this one replaces, with operands of their own; they run one by one while somebody
    // listens to the tensors in between.
    std::vector<Step> members;
  };

  Interpreter(std::shared_ptr<const Model> model, const Graph& graph, int threads);
  // `parent` is nullptr for the first graph of a model.
  Status PrepareFallback(const InterpreterOptions& options);
  void KeepInputs();
  Status InvokeFallback(const Status& reason);
  static Result<std::unique_ptr<Interpreter>> CreateFor(std::shared_ptr<const Model> model,
                                                        const Graph& graph,
                                                        const InterpreterOptions& options,
                                                        Interpreter* parent);
  Status Plan(Delegate* delegate, const PlanOptions& options);
  Status CheckWeightCopies() const;
  Status PrepareSteps();
  Status OrderSteps();
  Status FoldPads();
  void CountPackedWeights();
  Status AttachTails();
  void ChainSteps();
  void ReplaceSteps(std::vector<size_t> members, std::vector<int32_t> inputs,
                    std::unique_ptr<NodeExecutor> executor);
  bool IsVariable(int32_t tensor) const {
    return tensor >= 0 && graph().tensors[tensor].is_variable;
  }
  struct TensorUses;
  TensorUses CountUses() const;
  void RemoveReplacedSteps();
  Status AllocateArena(Interpreter* parent);
  void PrepareToListen();
  Status CreateCallees();
  void BindOperands();
  void BindOperands(Step* step);
  template <typename Function>
  void ForEachMember(const Function& function);
  template <typename Self>
  static auto AddressOf(Self* self, int32_t tensor) -> decltype(self->arena_.data());
  bool RunsMembers(const Step& step) const;
  Status RunStep(Step* step);
  void TraceNode(int32_t node, int64_t start_ns);
  Status RunSteps();
  void AsyncLoop();

  const std::shared_ptr<const Model> model_;
  const Graph& graph_;  // of model_
  ThreadPool pool_;
  ThreadPool caller_pool_;  // of one
  std::vector<Partition> partitions_;
  std::vector<NodePlacement> placements_;
  std::vector<Step> steps_;
  Buffer arena_;
  int64_t arena_lower_bound_bytes_ = 0;
  int64_t used_packed_weight_bytes_ = 0;
  std::vector<int64_t> arena_offsets_;  // per tensor; -1: not in the arena
  // Tensors between the members of steps, for listeners: empty until there is one.
  Buffer hidden_;
  std::vector<int64_t> hidden_offsets_;    // per tensor; -1: not there
  std::vector<uint8_t*> variables_;        // of the model, in the arena of its first graph
  std::unique_ptr<Interpreter> fallback_;  // nullptr: none
  bool on_fallback_ = false;               // the last invocation was
  DeviceUsage last_usage_;
  Tap tap_;
  Trace trace_;
  std::atomic<bool> cancelled_{false};
  bool invoking_ = false;  // guarded by async_mutex_

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
