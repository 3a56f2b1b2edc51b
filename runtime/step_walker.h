// SPDX-License-Identifier: Apache-2.0
//
// StepWalker: gives a plan memory and runs it, step by step, as often as it is asked to. One arena
// holds all intermediate tensors; a run allocates nothing.
//
// What outlasts a run (variable tensors, the model's variables) lies in the arena, too, where
// nothing else uses its memory. A graph that CALL_ONCE names has a walker of its own, which shares
// the variables.
//
// Thread safety: one caller at a time, except Cancel, which any thread may call.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/thread_pool.h"
#include "runtime/model.h"
#include "runtime/ops/node_executor.h"
#include "runtime/plan/step_plan.h"

namespace atollrt {

class StepWalker {
 public:
  // `plan` is of the model's first graph; it runs on `pool`. kResourceExhausted if its tensors do
  // not fit into memory.
  static Result<std::unique_ptr<StepWalker>> Create(std::shared_ptr<const Model> model,
                                                    StepPlan plan, CpuFeatures features,
                                                    std::unique_ptr<ThreadPool> pool);
  StepWalker(const StepWalker&) = delete;
  StepWalker& operator=(const StepWalker&) = delete;

  // Runs every step once; ends with the first error, or with kCancelled.
  Status Run();
  // Copy tensors that lie outside of the arena and are not used in place (SetTensorMemory): inputs
  // before a Run, outputs after it.
  void CopyIn();
  void CopyOut();
  // Makes the Run in progress, or the next one, end with kCancelled, if it still can.
  void Cancel();
  void ForgetCancel() { cancelled_ = false; }
  // Brings back the state after Create: variable tensors hold their zero point (int8) or 0, no
  // variable is assigned, and CALL_ONCE will run again.
  void ResetVariables();

  const Graph& graph() const { return graph_; }
  const StepPlan& plan() const { return plan_; }
  // The bytes of a tensor: constants in the model, inputs, outputs and intermediates in the arena
  // (which reuses the memory of intermediates); empty for tensors inside partitions.
  std::span<uint8_t> TensorBytes(int32_t tensor);
  std::span<const uint8_t> ConstTensorBytes(int32_t tensor) const;

  // Where an input or output of the graph lies from now on: `bytes`, as many as it has, which
  // `owner` keeps there; an empty span: in memory of the walker's again. Steps read and write them
  // in place; where they cannot, as the tensor is a part of another or `bytes` are not aligned to
  // its type, they are copied before or after each run. kInvalidArgument for other tensors or
  // sizes. Between runs.
  Status SetTensorMemory(int32_t tensor, std::span<uint8_t> bytes, std::shared_ptr<void> owner);

  HostMemory arena() { return {arena_.bytes(), arena_.memfd()}; }
  int64_t arena_bytes() const { return static_cast<int64_t>(arena_.size()); }
  // What no plan of the arena can go below.
  int64_t arena_lower_bound_bytes() const { return arena_lower_bound_bytes_; }
  // What the partitions of the last Run cost together.
  const RequestCost& cost() const { return cost_; }

  // Called on the running thread for each tensor that a step has written.
  using Tap = std::function<void(int32_t tensor)>;
  void SetTap(Tap tap);
  // Called for everything that takes time, at the end of the step that it belongs to; between
  // runs, nullptr ends it.
  void SetTrace(Trace trace);

 private:
  // A step with its operands bound to memory.
  struct BoundStep {
    const Step* step = nullptr;
    std::vector<const uint8_t*> inputs;
    std::vector<uint8_t*> outputs;
    std::vector<uint8_t*> state;
    size_t scratch_offset = 0;
    bool is_done = false;                // by the places of its operands (arena_layout.h)
    std::unique_ptr<StepWalker> callee;  // CALL_ONCE
    bool called = false;
    // Those of Step::members, which run one by one while somebody listens to the tensors in
    // between.
    std::vector<BoundStep> members;
  };

  StepWalker(std::shared_ptr<const Model> model, const Graph& graph, StepPlan plan,
             std::unique_ptr<ThreadPool> pool);
  // `parent` is nullptr for the first graph of a model.
  static Result<std::unique_ptr<StepWalker>> CreateFor(std::shared_ptr<const Model> model,
                                                       const Graph& graph, StepPlan plan,
                                                       CpuFeatures features,
                                                       std::unique_ptr<ThreadPool> pool,
                                                       StepWalker* parent);
  Status AllocateArena(const StepWalker* parent);
  Status CreateCallees(CpuFeatures features);
  static BoundStep Unbound(const Step& step);
  void BindAll();
  // Again, those steps that touch the tensor's block of the arena: programs whose buffers are
  // elsewhere at each invocation pay for this.
  void BindUsersOf(int32_t tensor);
  void BindWithMembers(BoundStep* bound);
  bool MayLieOutside(int32_t tensor, const uint8_t* data) const;
  void BindOperands(BoundStep* bound);
  void PrepareToListen();
  template <typename Self>
  static auto AddressOf(Self* self, int32_t tensor) -> decltype(self->arena_.data());
  bool RunsMembers(const BoundStep& bound) const;
  Status RunStep(BoundStep* bound);
  void TraceNode(int32_t node, int64_t start_ns);

  const std::shared_ptr<const Model> model_;
  const Graph& graph_;  // of model_
  const StepPlan plan_;
  const std::unique_ptr<ThreadPool> pool_;
  ThreadPool caller_pool_;  // of one
  std::vector<BoundStep> steps_;
  Buffer arena_;
  int64_t arena_lower_bound_bytes_ = 0;
  std::vector<int64_t> arena_offsets_;  // per tensor; -1: not in the arena
  std::vector<int32_t> blocks_;         // per tensor, as ArenaLayout::blocks
  // Inputs and outputs that lie outside of the arena.
  struct Outside {
    int32_t tensor = 0;
    std::span<uint8_t> bytes;
    std::shared_ptr<void> owner;
    bool in_place = false;  // else copied
  };
  std::vector<Outside> outside_;
  // Tensors between the members of steps, for listeners: empty until there is one.
  Buffer hidden_;
  std::vector<int64_t> hidden_offsets_;  // per tensor; -1: not there
  std::vector<uint8_t*> variables_;      // of the model, in the arena of its first graph
  RequestCost cost_;
  Tap tap_;
  Trace trace_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace atollrt
