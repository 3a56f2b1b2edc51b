// SPDX-License-Identifier: Apache-2.0
//
// Nodes of the domain "tflite": custom operators of TensorFlow Lite, as they are.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "quantize/onnx/onnx_operators.h"
#include "runtime/tflite/custom_options.h"

namespace atollrt {
namespace {

// AttributeProto.AttributeType.
constexpr int32_t kFloatAttribute = 1;
constexpr int32_t kIntAttribute = 2;

// Attributes have the names that the operator's options have in a .tflite.
Status SetOptions(const OnnxNode& from, Node* node) {
  std::vector<FlexbufferEntry> entries;
  for (const OnnxAttribute& attribute : from.attributes) {
    FlexbufferEntry entry{.key = attribute.name};
    if (attribute.type == kFloatAttribute) {
      entry.integer = std::abs(attribute.f) < 1e9f ? static_cast<int64_t>(attribute.f) : 0;
      entry.real = static_cast<double>(attribute.f);
    } else if (attribute.type == kIntAttribute) {
      entry.integer = attribute.i;
      entry.real = static_cast<double>(attribute.i);
    } else {
      return Unsupported("its attribute '%s' is no number",
                         std::string(attribute.name.substr(0, 80)).c_str());
    }
    entries.push_back(entry);
  }
  return SetCustomOptions(entries, node);
}

}  // namespace

Status ImportTfliteOperator(OnnxNodeImport& n) {
  // Its operands are rows and columns; operators of pictures would need theirs in another order.
  if (n.node.op_type != "TFLite_Detection_PostProcess") {
    return Unsupported(
        "of the domain 'tflite' only TFLite_Detection_PostProcess can be imported; export without "
        "other custom operators");
  }
  constexpr size_t kInputs = 3;
  constexpr size_t kOutputs = 4;
  if (n.input_count() != kInputs || n.node.outputs.size() != kOutputs) {
    return CorruptModel("it has %zu inputs and %zu outputs, must have %zu and %zu", n.input_count(),
                        n.node.outputs.size(), kInputs, kOutputs);
  }
  Node node;
  node.custom_name = n.node.op_type;
  ATOLL_RETURN_IF_ERROR(SetOptions(n.node, &node));
  for (size_t i = 0; i < n.input_count(); ++i) {
    ATOLL_ASSIGN_OR_RETURN(const OnnxValue* value, n.FloatInput(i));
    ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.InOrder(*value));
    node.inputs.push_back(tensor);
  }
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int32_t> outputs,
                         n.b.EmitNode(std::move(node), kOutputs, DataType::kFloat32));
  for (size_t i = 0; i < kOutputs; ++i) {
    const size_t rank = n.b.tensor(outputs[i]).shape.size();
    ATOLL_RETURN_IF_ERROR(n.SetAt(i, n.b.FromTensor(outputs[i], IdentityPerm(rank))));
  }
  return Status();
}

}  // namespace atollrt
