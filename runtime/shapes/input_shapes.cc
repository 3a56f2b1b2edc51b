// SPDX-License-Identifier: Apache-2.0
#include "runtime/shapes/input_shapes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/graph/graph_checks.h"

namespace atollrt {
namespace {

// That a message lists.
constexpr size_t kMaxListedInputs = 16;

// "0 'image' [1, 224, 224, 3], 1 'size' [2]"
std::string ListInputs(const Graph& graph) {
  std::string list;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (i == kMaxListedInputs) {
      return list + Format(" and %zu more", graph.inputs.size() - kMaxListedInputs);
    }
    const Tensor& input = graph.tensors[graph.inputs[i]];
    list += Format("%s%zu '%s' %s", i == 0 ? "" : ", ", i, input.name.c_str(),
                   ShapeString(input.shape).c_str());
  }
  return list.empty() ? "none" : list;
}

// As a tensor.
Result<int32_t> FindInput(const Graph& graph, const InputShape& wanted) {
  const std::vector<int32_t>& inputs = graph.inputs;
  if (wanted.name.empty()) {
    const size_t index = wanted.index == -1 && inputs.size() == 1
                             ? 0
                             : static_cast<size_t>(static_cast<int64_t>(wanted.index));
    if (index < inputs.size()) return inputs[index];
    if (wanted.index == -1) {
      return InvalidArgument("it is not said which input shall have the shape %s; there are: %s",
                             ShapeString(wanted.shape).c_str(), ListInputs(graph).c_str());
    }
    return InvalidArgument("there is no input %d; there are: %s", wanted.index,
                           ListInputs(graph).c_str());
  }
  int32_t found = -1;
  for (const int32_t input : inputs) {
    if (graph.tensors[input].name != wanted.name || input == found) continue;
    if (found >= 0) {
      return InvalidArgument("several inputs are called '%s', say which one by its number: %s",
                             wanted.name.c_str(), ListInputs(graph).c_str());
    }
    found = input;
  }
  if (found >= 0) return found;
  return InvalidArgument("no input is called '%s'; there are: %s", wanted.name.c_str(),
                         ListInputs(graph).c_str());
}

// Sets `changed` to what SetInputShapes says of it.
Status SetInputShape(const InputShape& wanted, bool is_compiled, Tensor* input,
                     std::string* changed) {
  Tensor& tensor = *input;
  const size_t rank = tensor.shape.size();
  Shape shape = wanted.shape;
  if (shape.size() == 2 && (rank == 3 || rank == 4)) {
    shape = tensor.shape;
    std::copy(wanted.shape.begin(), wanted.shape.end(), shape.begin() + 1);
  }
  const auto refuse = [&](const std::string& reason) {
    return InvalidArgument("input '%s' %s cannot have the shape %s: %s", tensor.name.c_str(),
                           ShapeString(tensor.shape).c_str(), ShapeString(wanted.shape).c_str(),
                           reason.c_str());
  };
  if (shape.size() != rank) {
    return refuse(Format("it must have %zu sizes%s", rank,
                         rank == 3 || rank == 4 ? ", or be a height and a width" : ""));
  }
  if (std::any_of(wanted.shape.begin(), wanted.shape.end(), [](int32_t dim) { return dim < 1; })) {
    return refuse("sizes must be at least 1");
  }
  if (shape == tensor.shape) return Status();
  if (is_compiled) {
    return Unsupported(
        "the model was compiled for input '%s' of shape %s and cannot have another; load the "
        "original model with the shape %s, or compile that anew",
        tensor.name.c_str(), ShapeString(tensor.shape).c_str(), ShapeString(wanted.shape).c_str());
  }
  Tensor resized{.name = {}, .type = tensor.type, .shape = shape, .quantization = {}, .data = {}};
  // Sizes that stay dynamic are refused with those of the other tensors.
  const bool is_fixed =
      std::none_of(shape.begin(), shape.end(), [](int32_t dim) { return dim < 0; });
  if (is_fixed && !HasAllowedSize(resized)) {
    return refuse(Format("of %s, that is more than %lld bytes", DataTypeName(tensor.type),
                         static_cast<long long>(kMaxTensorBytes)));
  }
  tensor.shape = std::move(shape);
  *changed += Format("%s input '%s' of shape %s", changed->empty() ? "with" : " and",
                     tensor.name.c_str(), ShapeString(tensor.shape).c_str());
  return Status();
}

}  // namespace

Result<std::string> SetInputShapes(std::span<const InputShape> input_shapes, Graph* graph) {
  std::vector<bool> is_set(graph->tensors.size());
  std::string changed;
  for (const InputShape& wanted : input_shapes) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t index, FindInput(*graph, wanted));
    Tensor& input = graph->tensors[index];
    if (is_set[index]) {
      return InvalidArgument("a shape for input '%s' is given twice", input.name.c_str());
    }
    is_set[index] = true;
    ATOLL_RETURN_IF_ERROR(SetInputShape(wanted, !graph->compiled.empty(), &input, &changed));
  }
  return changed;
}

}  // namespace atollrt
