// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_KERNEL_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_KERNEL_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compat/tflite/abi.h"
#include "compat/tflite_delegate/device.h"
#include "compat/tflite_delegate/model_writer.h"
#include "compat/tflite_delegate/partition.h"

namespace atollcompat {

// Nodes of a runtime's graph as a model of their own, in an interpreter of Atoll's. Inputs and
// outputs are the runtime's memory, wherever that is at the moment of Invoke. Errors are reported
// to the context, in a sentence. Belongs to one interpreter of the runtime.
class Kernel {
 public:
  struct Setup {
    std::shared_ptr<void> kept;  // whatever must live longer than the use of the device
    std::shared_ptr<Device> device;
    int num_threads = 0;  // 0: the runtime's
  };

  // `nodes` and `outputs` as for WriteModel. What is wrong with them Prepare says.
  Kernel(TfLiteContext* context, std::span<const GraphNode> nodes, std::span<const int> outputs,
         Setup setup);
  // The same of a partition that was made before.
  Kernel(Partition partition, Setup setup);

  const std::shared_ptr<Device>& device() const { return setup_.device; }

  // To be called with each allocation of tensors: with the shapes of inputs that there are then.
  TfLiteStatus Prepare(TfLiteContext* context);
  TfLiteStatus Invoke(TfLiteContext* context);

 private:
  // A tensor of the runtime that is an input or an output here.
  struct Port {
    int tensor;
    void* memory = nullptr;  // that the interpreter was told to use
    size_t bytes = 0;
  };
  TfLiteStatus Fail(TfLiteContext* context, const char* format, const char* reason);
  bool MakeInterpreter(int num_threads);
  bool Resize(const std::vector<std::vector<int>>& dims, std::string* error);
  TfLiteStatus ShapeOutputs(TfLiteContext* context);
  bool Bind(TfLiteContext* context, bool is_input, int32_t index, Port* port);
  void NoticeReset(TfLiteContext* context);
  void MarkVariables(TfLiteContext* context);

  // TensorFlow Lite resets variables by filling its own memory of them, which nobody uses here.
  // What is written there after each invocation tells whether that has happened.
  static uint8_t MarkOf(const TfLiteTensor& variable);

  Setup setup_;
  Partition partition_;
  std::vector<std::vector<int>> dims_;  // that the interpreter has; none: it is not ready
  std::vector<Port> inputs_;
  std::vector<Port> outputs_;
  bool has_run_ = false;
};

// What a runtime calls for each partition of a Delegate. `name` must live for ever.
TfLiteRegistration KernelRegistration(const char* name);

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_KERNEL_H_
