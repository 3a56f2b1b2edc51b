// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_MODEL_WRITER_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_MODEL_WRITER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compat/tflite/abi.h"

namespace atollcompat {

// The bytes of a file, where they were written.
struct FileBytes {
  std::shared_ptr<const uint8_t> data;
  size_t size = 0;

  std::span<const uint8_t> span() const { return {data.get(), size}; }
};

// Some nodes of a runtime's graph as a model file.
struct WrittenModel {
  FileBytes bytes;
  std::string error;        // why there are no bytes, in a sentence; "" if there are
  std::vector<int> inputs;  // of the model, in its order: the runtime's tensors
  std::vector<int> outputs;
  std::vector<int> variables;    // tensors that keep what the nodes leave in them
  std::vector<int> empty_lists;  // that are taken for constants
  std::vector<int> tensors;      // all, in the order of the file: the runtime's
};

// A node of a runtime's graph. Pointers from GetNodeAndRegistration are good until the next call of
// anything that adds nodes.
struct GraphNode {
  const TfLiteNode* node;
  const TfLiteRegistration* registration;
};

// `nodes` in the order in which they run. `outputs` are the runtime's tensors that must exist
// afterwards; what the nodes read, do not write and is neither constant nor variable becomes an
// input. Shapes are those that tensors have at that moment. Nodes may be malformed in any way that
// can be seen.
WrittenModel WriteModel(const TfLiteContext* context, std::span<const GraphNode> nodes,
                        std::span<const int> outputs);

// Why this node cannot be a part of a model, "" if it can as far as is known without loading it.
std::string NodeProblem(const TfLiteContext* context, const GraphNode& node);

// What Google's compiler makes of the operators that an Edge TPU runs.
inline constexpr char kEdgeTpuOperator[] = "edgetpu-custom-op";
inline constexpr int32_t kCustomOperator = 32;
// What Atoll's own compiler makes. What it was made from is elsewhere in the file, where runtimes
// do not look; a written model has the executable alone, for a device like that which it is for.
inline constexpr char kAtollOperator[] = "atoll-compiled-partition";
// Whether it is one of the two, which nobody else has a kernel for.
bool IsCompiledOperator(const TfLiteRegistration& registration);

// "CONV_2D" is not known here; "operator 3", or the name of a custom one.
std::string OperatorName(const TfLiteRegistration& registration);

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_MODEL_WRITER_H_
