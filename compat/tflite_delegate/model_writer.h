// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_MODEL_WRITER_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_MODEL_WRITER_H_

#include <span>
#include <string>
#include <vector>

#include "compat/tflite/abi.h"

namespace atollcompat {

// Some nodes of a runtime's graph as a model file.
struct WrittenModel {
  std::string bytes;
  std::string error;        // why there are no bytes, in a sentence; "" if there are
  std::vector<int> inputs;  // of the model, in its order: the runtime's tensors
  std::vector<int> outputs;
  std::vector<int> variables;  // tensors that keep what the nodes leave in them
};

// `nodes` in the order in which they run. `outputs` are the runtime's tensors that must exist
// afterwards; what the nodes read, do not write and is neither constant nor variable becomes an
// input. Asks `context` for nodes, so it may be called in a delegate's Prepare and a kernel's init
// only. Shapes are those that tensors have at that moment.
WrittenModel WriteModel(TfLiteContext* context, std::span<const int> nodes,
                        std::span<const int> outputs);

// "CONV_2D" is not known here; "operator 3", or the name of a custom one.
std::string OperatorName(const TfLiteRegistration& registration);

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_MODEL_WRITER_H_
