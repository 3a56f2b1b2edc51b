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

// A node of a runtime's graph. Pointers from GetNodeAndRegistration are good until the next call of
// anything that adds nodes.
struct GraphNode {
  const TfLiteNode* node;
  const TfLiteRegistration* registration;
};

// `nodes` in the order in which they run. `outputs` are the runtime's tensors that must exist
// afterwards; what the nodes read, do not write and is neither constant nor variable becomes an
// input. Shapes are those that tensors have at that moment.
WrittenModel WriteModel(const TfLiteContext* context, std::span<const GraphNode> nodes,
                        std::span<const int> outputs);

// What Google's compiler makes of the operators that an Edge TPU runs.
inline constexpr char kEdgeTpuOperator[] = "edgetpu-custom-op";
inline constexpr int32_t kCustomOperator = 32;
bool IsEdgeTpuOperator(const TfLiteRegistration& registration);

// "CONV_2D" is not known here; "operator 3", or the name of a custom one.
std::string OperatorName(const TfLiteRegistration& registration);

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_MODEL_WRITER_H_
