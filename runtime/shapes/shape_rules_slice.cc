// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of operators that take tensors apart and put them together.
#include <utility>

#include "runtime/shapes/shape_rules.h"
#include "runtime/shapes/slice.h"

namespace atollrt {
namespace {

// The only value of a constant operand.
Result<int64_t> ConstantScalar(const Graph& graph, const Node& node, size_t position) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> values, ConstantInput(graph, node, position));
  if (values.size() != 1) {
    return CorruptModel("%s has %zu elements, must have 1",
                        Describe(graph, node.inputs[position]).c_str(), values.size());
  }
  return values[0];
}

// `axis` of a shape that has one dimension more than `shape`.
Result<int32_t> CheckNewAxis(int64_t axis, const Shape& shape) {
  const int32_t normalized = NormalizeAxis(axis, shape.size() + 1);
  if (normalized < 0) {
    return CorruptModel("new axis %lld for shape %s", static_cast<long long>(axis),
                        ShapeString(shape).c_str());
  }
  return normalized;
}

Status CheckSplitCount(const Node& node) {
  const int32_t count = std::get<SplitOptions>(node.options).num_splits;
  if (count >= 1 && node.outputs.size() == static_cast<size_t>(count)) return Status();
  return CorruptModel("num_splits is %d for %zu outputs", count, node.outputs.size());
}

}  // namespace

Status InferSlice(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_ASSIGN_OR_RETURN(ResolvedSlice slice, ResolveSlice(graph, node));
  outputs->push_back(std::move(slice.output));
  return Status();
}

Status InferSplit(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2, node.outputs.size()}));
  ATOLL_RETURN_IF_ERROR(CheckSplitCount(node));
  Shape shape = graph.Input(node, 1)->shape;
  ATOLL_ASSIGN_OR_RETURN(const int64_t stored, ConstantScalar(graph, node, 0));
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckAxis(stored, shape));
  const int32_t count = std::get<SplitOptions>(node.options).num_splits;
  if (shape[axis] % count != 0) {
    return CorruptModel("dimension %d of shape %s cannot be split into %d equal parts", axis,
                        ShapeString(shape).c_str(), count);
  }
  shape[axis] /= count;
  outputs->assign(node.outputs.size(), shape);
  return Status();
}

Status InferSplitV(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 3, node.outputs.size()}));
  ATOLL_RETURN_IF_ERROR(CheckSplitCount(node));
  Shape shape = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, ConstantInput(graph, node, 1));
  ATOLL_ASSIGN_OR_RETURN(const int64_t stored, ConstantScalar(graph, node, 2));
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckAxis(stored, shape));
  if (sizes.size() != node.outputs.size()) {
    return CorruptModel("%zu sizes for %zu outputs", sizes.size(), node.outputs.size());
  }
  int64_t rest = shape[axis];
  int64_t* inferred = nullptr;
  for (int64_t& size : sizes) {
    if (size == -1) {
      if (inferred != nullptr) return CorruptModel("more than one size is -1");
      inferred = &size;
    } else if (size < 0 || size > rest) {
      return CorruptModel("size %lld does not fit dimension %d of shape %s",
                          static_cast<long long>(size), axis, ShapeString(shape).c_str());
    } else {
      rest -= size;
    }
  }
  if (inferred != nullptr) {
    *inferred = rest;
  } else if (rest != 0) {
    return CorruptModel("the sizes leave %lld elements of dimension %d of shape %s",
                        static_cast<long long>(rest), axis, ShapeString(shape).c_str());
  }
  for (const int64_t size : sizes) {
    shape[axis] = static_cast<int32_t>(size);
    outputs->push_back(shape);
  }
  return Status();
}

Status InferPack(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {node.inputs.size(), 65536}));
  const AxisOptions& options = std::get<AxisOptions>(node.options);
  if (options.count < 1 || node.inputs.size() != static_cast<size_t>(options.count)) {
    return CorruptModel("values_count is %d for %zu inputs", options.count, node.inputs.size());
  }
  Shape shape = graph.Input(node, 0)->shape;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Shape& other = graph.Input(node, i)->shape;
    if (other != shape) {
      return CorruptModel("input %zu has shape %s, input 0 has %s", i, ShapeString(other).c_str(),
                          ShapeString(shape).c_str());
    }
  }
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckNewAxis(options.axis, shape));
  shape.insert(shape.begin() + axis, options.count);
  outputs->push_back(std::move(shape));
  return Status();
}

Status InferUnpack(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1, node.outputs.size()}));
  const AxisOptions& options = std::get<AxisOptions>(node.options);
  Shape shape = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckAxis(options.axis, shape));
  if (shape[axis] != options.count || static_cast<size_t>(shape[axis]) != node.outputs.size()) {
    return CorruptModel("num is %d for %zu outputs and dimension %d of shape %s", options.count,
                        node.outputs.size(), axis, ShapeString(shape).c_str());
  }
  shape.erase(shape.begin() + axis);
  outputs->assign(node.outputs.size(), shape);
  return Status();
}

Status InferExpandDims(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  Shape shape = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const int64_t stored, ConstantScalar(graph, node, 1));
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckNewAxis(stored, shape));
  shape.insert(shape.begin() + axis, 1);
  outputs->push_back(std::move(shape));
  return Status();
}

Status InferArgReduction(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  Shape shape = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const int64_t stored, ConstantScalar(graph, node, 1));
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckAxis(stored, shape));
  if (shape[axis] < 1) {
    return CorruptModel("dimension %d of shape %s is empty", axis, ShapeString(shape).c_str());
  }
  shape.erase(shape.begin() + axis);
  outputs->push_back(std::move(shape));
  return Status();
}

Status InferGather(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  const Shape& data = graph.Input(node, 0)->shape;
  const Shape& indices = graph.Input(node, 1)->shape;
  const AxisOptions& options = std::get<AxisOptions>(node.options);
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckAxis(options.axis, data));
  const int64_t batch_dims =
      options.count < 0 ? options.count + static_cast<int64_t>(indices.size()) : options.count;
  if (batch_dims < 0 || batch_dims > axis || batch_dims > static_cast<int64_t>(indices.size())) {
    return CorruptModel("batch_dims %d with axis %d of shape %s and indices of shape %s",
                        options.count, axis, ShapeString(data).c_str(),
                        ShapeString(indices).c_str());
  }
  for (size_t i = 0; i < static_cast<size_t>(batch_dims); ++i) {
    if (data[i] != indices[i]) {
      return CorruptModel("shape %s and indices of shape %s differ in batch dimension %zu",
                          ShapeString(data).c_str(), ShapeString(indices).c_str(), i);
    }
  }
  Shape output(data.begin(), data.begin() + axis);
  output.insert(output.end(), indices.begin() + batch_dims, indices.end());
  output.insert(output.end(), data.begin() + axis + 1, data.end());
  outputs->push_back(std::move(output));
  return Status();
}

Status InferGatherNd(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  const Shape& data = graph.Input(node, 0)->shape;
  const Shape& indices = graph.Input(node, 1)->shape;
  if (data.empty() || indices.empty() || indices.back() < 1 ||
      static_cast<size_t>(indices.back()) > data.size()) {
    return CorruptModel("indices of shape %s do not address shape %s", ShapeString(indices).c_str(),
                        ShapeString(data).c_str());
  }
  Shape output(indices.begin(), indices.end() - 1);
  output.insert(output.end(), data.begin() + indices.back(), data.end());
  outputs->push_back(std::move(output));
  return Status();
}

}  // namespace atollrt
