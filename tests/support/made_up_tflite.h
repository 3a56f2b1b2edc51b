// SPDX-License-Identifier: Apache-2.0
//
// A made-up TensorFlow Lite for delegates: what a runtime does with one between creation and
// destruction, with its structs in the layout of a version that cannot be run here. It partitions
// as the real one does, and runs what a delegate does not take with Atoll's CPU operators, so that
// outputs of mixed graphs are comparable. What makes it useful is how unkind it is:
//
//   - each struct ends at a page that cannot be read, where that version's struct ends, and builtin
//     parameters end before fields that came with later versions of their operator;
//   - tensors, nodes and registrations move to other addresses before each call that may move them;
//   - tensors inside of partitions have no memory, and others can be given new memory for each
//     invocation;
//   - a registration goes by value in that version's size; what later versions appended is used as
//     they do;
//   - functions that a version forbids outside of a delegate's Prepare fail, and are counted.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compat/tflite/abi.h"
#include "runtime/base/thread_pool.h"
#include "runtime/model.h"
#include "runtime/ops/node_executor.h"
#include "tests/support/guarded_buffer.h"

namespace atollrt {

// Sizes of a version's structs.
struct TfliteLayout {
  const char* name;
  size_t context;
  size_t node;
  size_t registration;
  size_t delegate;
  bool has_new_parameters;  // all fields of builtin parameters, whatever the operator's version
};
// 2.5, 2.9, 2.16 and LiteRT of 2026.
std::span<const TfliteLayout> TfliteLayouts();

// An input tensor's bytes by the rule of tests/golden/ops/README.md.
void FillFromSeed(uint64_t seed, DataType type, std::span<uint8_t> bytes);

class MadeUpTflite {
 public:
  // Of the first graph, without what constant folding removed. `threads` as in SetNumThreads: -1
  // if nobody says.
  MadeUpTflite(std::shared_ptr<const Model> model, const TfliteLayout& layout, int threads = -1);
  // Frees kernels, as far as the delegate is still there to have them freed.
  ~MadeUpTflite();
  MadeUpTflite(const MadeUpTflite&) = delete;
  MadeUpTflite& operator=(const MadeUpTflite&) = delete;

  // As ModifyGraphWithDelegate. After an error the graph is what it was before.
  TfLiteStatus ModifyGraph(TfLiteDelegate* delegate);
  TfLiteStatus AllocateTensors();
  // As ResizeInputTensor: takes effect with AllocateTensors.
  void ResizeInput(size_t index, Shape shape);
  TfLiteStatus Invoke();
  void ResetVariables();

  size_t input_count() const { return graph().inputs.size(); }
  size_t output_count() const { return graph().outputs.size(); }
  std::span<uint8_t> Input(size_t index) { return BytesOf(graph().inputs[index]); }
  std::span<uint8_t> Output(size_t index) { return BytesOf(graph().outputs[index]); }
  // Fills inputs from the seed, invokes, and returns the outputs; none
  // if that failed.
  std::vector<std::vector<uint8_t>> Run(uint64_t seed);

  // Nodes that the delegate has, by partition.
  const std::vector<std::vector<int>>& partitions() const { return partitions_; }
  size_t claimed() const;
  // What was reported, a line each.
  const std::string& errors() const { return errors_; }
  void ClearErrors() { errors_.clear(); }

  // Whether what may move does; programs that measure turn it off.
  bool shakes = true;
  // Every tensor is in other memory for each invocation, and what was there before is gone.
  bool moves_memory = false;
  // What a test makes of the graph after the runtime has made its structs, before a delegate sees
  // them.
  TfLiteTensor& tensor(int index) { return tensors()[index]; }
  TfLiteNode& node(int index) { return *nodes_[static_cast<size_t>(index)].get(); }
  TfLiteRegistration& registration(int index) {
    return *nodes_[static_cast<size_t>(index)].registration();
  }
  TfLiteContext* context() { return reinterpret_cast<TfLiteContext*>(context_->data()); }
  const Graph& graph() const { return model_->graph(); }

 private:
  struct RuntimeNode {
    std::unique_ptr<GuardedBuffer> node;
    std::unique_ptr<GuardedBuffer> registered;
    std::unique_ptr<GuardedBuffer> params;  // builtin_data or custom_initial_data
    std::unique_ptr<NodeExecutor> executor;
    TfLiteNode* get() const { return reinterpret_cast<TfLiteNode*>(node->data()); }
    TfLiteRegistration* registration() const {
      return reinterpret_cast<TfLiteRegistration*>(registered->data());
    }
  };
  struct FreeArray {
    void operator()(void* array) const { std::free(array); }
  };
  struct Subset {
    bool is_partition;
    std::vector<int> nodes, inputs, outputs;
  };
  // A partition's node; what it was made with lives as long as it.
  struct Replacement {
    int node;
    TfLiteDelegateParams params;
  };
  static MadeUpTflite& Of(TfLiteContext* context) {
    return *static_cast<MadeUpTflite*>(context->impl_);
  }
  TfLiteTensor* tensors() { return reinterpret_cast<TfLiteTensor*>(tensors_->data()); }
  std::span<uint8_t> BytesOf(int32_t tensor);
  void MakeTensors();
  void MakeNodes();
  void AllowDelegates(bool allow);
  void Shake();
  TfLiteIntArray* Keep(std::span<const int> numbers);
  void SetDims(TfLiteTensor* tensor, std::span<const int> dims);
  std::vector<Subset> PartitionGraph(std::span<const int> nodes) const;
  TfLiteStatus Replace(const TfLiteRegistration& registration, const TfLiteIntArray& nodes,
                       TfLiteDelegate* delegate);
  TfLiteStatus InvokeNode(RuntimeNode* node);
  void GiveMemory(int32_t tensor);
  void FreeKernels();

  static TfLiteStatus GetExecutionPlan(TfLiteContext* context, TfLiteIntArray** plan);
  static TfLiteStatus ResizeTensor(TfLiteContext* context, TfLiteTensor* tensor,
                                   TfLiteIntArray* dims);
  static void ReportError(TfLiteContext* context, const char* format, ...);
  static TfLiteStatus AddTensors(TfLiteContext* context, int count, int* first);
  static TfLiteStatus GetNode(TfLiteContext* context, int index, TfLiteNode** node,
                              TfLiteRegistration** registration);
  static TfLiteStatus Preview(TfLiteContext* context, const TfLiteIntArray* nodes,
                              TfLiteDelegateParams** partitions, int* count);

  const TfliteLayout& layout_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Model> original_;
  std::vector<InputShape> shapes_;
  std::unique_ptr<GuardedBuffer> context_;
  std::unique_ptr<GuardedBuffer> tensors_;
  std::vector<std::vector<uint8_t>> quantizations_;
  std::vector<std::unique_ptr<void, FreeArray>> arrays_;
  std::vector<std::unique_ptr<void, FreeArray>> memory_;  // of tensors
  std::vector<RuntimeNode> nodes_;
  std::vector<int> plan_, original_plan_;
  std::vector<Replacement> replacements_;
  std::vector<TfLiteDelegateParams> previewed_;
  std::vector<std::vector<int>> partitions_;
  std::string errors_;
  ThreadPool pool_{1};
  std::vector<uint8_t> scratch_;
  bool is_ready_ = false;
  bool may_ask_ = false;
};

}  // namespace atollrt
