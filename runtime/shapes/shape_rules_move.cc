// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of operators that move data.
#include <utility>

#include "runtime/shapes/shape_rules.h"

namespace atollrt {

Status InferReshape(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  Shape output;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 2}));
  const Tensor& input = *graph.Input(node, 0);
  const Tensor* shape_input = graph.Input(node, 1);
  std::vector<int64_t> target;
  if (shape_input != nullptr && shape_input->type == DataType::kInt32 &&
      shape_input->shape.size() == 1) {
    ATOLL_ASSIGN_OR_RETURN(target, ConstantInput(graph, node, 1));
  } else {
    const Shape& option = std::get<ReshapeOptions>(node.options).new_shape;
    target.assign(option.begin(), option.end());
    // Old converters wrote a scalar as [0].
    if (target.size() == 1 && target[0] == 0) target.clear();
  }
  int64_t known = 1;
  int inferred = -1;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == -1) {
      if (inferred >= 0) return CorruptModel("more than one size of the target is -1");
      inferred = static_cast<int>(i);
    } else if (target[i] < 0 || target[i] > INT32_MAX ||
               __builtin_mul_overflow(known, target[i], &known)) {
      return CorruptModel("size %zu of the target is %lld", i, static_cast<long long>(target[i]));
    }
  }
  const int64_t elements = input.element_count();
  if (inferred >= 0) {
    if (known == 0 || elements % known != 0) {
      return CorruptModel("%lld elements cannot be divided by the known sizes' product %lld",
                          static_cast<long long>(elements), static_cast<long long>(known));
    }
    target[inferred] = elements / known;
    known = elements;
  }
  if (known != elements) {
    return CorruptModel("%lld elements cannot become %lld", static_cast<long long>(elements),
                        static_cast<long long>(known));
  }
  output.assign(target.begin(), target.end());
  outputs->push_back(std::move(output));
  return Status();
}

Status InferSqueeze(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  Shape output;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  const Shape& input = graph.Input(node, 0)->shape;
  std::vector<bool> drop(input.size());
  const std::vector<int32_t>& dims = std::get<SqueezeOptions>(node.options).dims;
  for (size_t i = 0; dims.empty() && i < input.size(); ++i) drop[i] = input[i] == 1;
  for (const int32_t dim : dims) {
    const int32_t axis = NormalizeAxis(dim, input.size());
    if (axis < 0 || input[axis] != 1) {
      return CorruptModel("cannot drop dimension %d of shape %s", dim, ShapeString(input).c_str());
    }
    drop[axis] = true;
  }
  output.clear();
  for (size_t i = 0; i < input.size(); ++i) {
    if (!drop[i]) output.push_back(input[i]);
  }
  outputs->push_back(std::move(output));
  return Status();
}

Status InferConcatenation(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  Shape output;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 65536}));
  output = graph.Input(node, 0)->shape;
  const int32_t stored = std::get<AxisOptions>(node.options).axis;
  const int32_t axis = NormalizeAxis(stored, output.size());
  if (axis < 0) {
    return CorruptModel("axis %d does not exist in shape %s", stored, ShapeString(output).c_str());
  }
  int64_t total = output[axis];
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Tensor* part = graph.Input(node, i);
    if (part == nullptr) return CorruptModel("input %zu is absent", i);
    const Shape& shape = part->shape;
    bool fits = shape.size() == output.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      fits = static_cast<int32_t>(d) == axis || shape[d] == output[d];
    }
    if (!fits) {
      return CorruptModel("input %zu of shape %s does not fit %s along axis %d", i,
                          ShapeString(shape).c_str(), ShapeString(output).c_str(), axis);
    }
    total += shape[axis];
  }
  if (total > INT32_MAX) {
    return CorruptModel("size %lld along axis %d", static_cast<long long>(total), axis);
  }
  output[axis] = static_cast<int32_t>(total);
  outputs->push_back(std::move(output));
  return Status();
}

Status InferPad(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  Shape output;
  const size_t inputs = node.type == OpType::kPADV2 ? 3 : 2;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {inputs, inputs}));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> paddings, ConstantInput(graph, node, 1));
  const Shape& input = graph.Input(node, 0)->shape;
  const Shape& stored = graph.Input(node, 1)->shape;
  if (stored.size() != 2 || stored[0] != static_cast<int64_t>(input.size()) || stored[1] != 2) {
    return CorruptModel("paddings have shape %s, must be [%zu, 2]", ShapeString(stored).c_str(),
                        input.size());
  }
  output = input;
  for (size_t i = 0; i < input.size(); ++i) {
    const int64_t before = paddings[2 * i];
    const int64_t after = paddings[2 * i + 1];
    if (before < 0 || after < 0 || before > INT32_MAX || after > INT32_MAX ||
        before + after + input[i] > INT32_MAX) {
      return CorruptModel("paddings of dimension %zu are %lld and %lld", i,
                          static_cast<long long>(before), static_cast<long long>(after));
    }
    output[i] = static_cast<int32_t>(before + after + input[i]);
  }
  outputs->push_back(std::move(output));
  return Status();
}

}  // namespace atollrt
