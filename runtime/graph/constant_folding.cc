// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/constant_folding.h"

#include <algorithm>
#include <utility>

namespace atollrt {
namespace {

// Quantization is checked after shape inference, so what has some is not touched.
bool MayFold(const Tensor& tensor) {
  if (!tensor.quantization.scales.empty()) return false;
  switch (tensor.type) {
    case DataType::kBool:
    case DataType::kFloat32:
    case DataType::kInt32:
    case DataType::kInt64:
      return tensor.byte_size() <= kMaxFoldedBytes;
    default:
      return false;
  }
}

// Weights of half precision, whatever their size: their kernels take single precision.
bool WidensHalves(const Graph& graph, const Node& node) {
  if (node.type != OpType::kDEQUANTIZE) return false;
  const Tensor* input = graph.Input(node, 0);
  return input != nullptr && input->type == DataType::kFloat16 && input->is_constant() &&
         input->element_count() > 0;
}

// Nothing that the node reads changes from one inference to the next.
bool ReadsConstants(const Graph& graph, const Node& node) {
  if (node.type == OpType::kSHAPE) return true;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&graph](int32_t index) {
    if (index < 0) return true;
    const Tensor& tensor = graph.tensors[index];
    return MayFold(tensor) && (tensor.is_constant() || tensor.element_count() == 0);
  });
}

// Without elements there would be no data to tell a constant by.
bool WritesValues(const Graph& graph, const Node& node) {
  return !node.outputs.empty() &&
         std::all_of(node.outputs.begin(), node.outputs.end(), [&graph](int32_t index) {
           const Tensor& tensor = graph.tensors[index];
           return MayFold(tensor) && tensor.element_count() > 0;
         });
}

}  // namespace

bool ConstantFolding::Fold(Graph* graph, const Node& node) const {
  const bool may_fold =
      WidensHalves(*graph, node) || (ReadsConstants(*graph, node) && WritesValues(*graph, node));
  if (!may_fold) return false;
  int64_t bytes = 0;
  for (const int32_t index : node.outputs) {
    bytes += std::max<int64_t>(graph->tensors[index].byte_size(), Buffer::kAlignment);
  }
  if (bytes > *bytes_left) return false;
  *bytes_left -= bytes;
  std::vector<Buffer> outputs;
  for (const int32_t index : node.outputs) {
    Result<Buffer> buffer =
        Buffer::Allocate(static_cast<size_t>(graph->tensors[index].byte_size()));
    if (!buffer.ok()) return false;
    outputs.push_back(*std::move(buffer));
  }
  if (!evaluate(*graph, node, outputs).ok()) return false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph->tensors[node.outputs[i]].data = outputs[i].bytes();
    values->push_back(std::move(outputs[i]));
  }
  return true;
}

}  // namespace atollrt
