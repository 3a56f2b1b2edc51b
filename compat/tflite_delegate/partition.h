// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_PARTITION_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_PARTITION_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compat/tflite/abi.h"
#include "compat/tflite_delegate/device.h"
#include "compat/tflite_delegate/model_writer.h"

namespace atollcompat {

struct InterpreterDelete {
  void operator()(AtollInterpreter* interpreter) const { AtollInterpreterDelete(interpreter); }
};
using InterpreterPtr = std::unique_ptr<AtollInterpreter, InterpreterDelete>;

// Nodes of a runtime's graph, ready to run in an interpreter of Atoll's.
struct Partition {
  std::vector<int> nodes;
  std::vector<int> outputs;            // as the runtime asked for them
  std::string error;                   // why there is no interpreter; "" if there is one
  bool is_lost = false;                // because of the device, not of the nodes
  WrittenModel written;                // without its bytes
  std::vector<std::vector<int>> dims;  // of written.inputs, that the model was written for
  std::shared_ptr<AtollModel> model;
  InterpreterPtr interpreter;
  int num_threads = 0;  // that it was made with
};

// Numbers in the layout of a TfLiteIntArray.
std::vector<int> AsArray(std::span<const int> numbers);

// The number of threads that a runtime asks for, as Atoll has it.
int ThreadsOf(const TfLiteContext* context, int num_threads);

// Writes a model of the nodes (model_writer.h), loads it and makes an interpreter for it, on
// `delegate`: null for the CPU.
Partition MakePartition(const TfLiteContext* context, std::span<const GraphNode> nodes,
                        std::span<const int> outputs, Device* device, AtollDelegate* delegate,
                        int num_threads);

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_PARTITION_H_
