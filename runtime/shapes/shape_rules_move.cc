// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of operators that move data: take it apart, put it together, rearrange it.
#include <algorithm>
#include <utility>

#include "runtime/graph/graph_checks.h"
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

// A size computed from sizes of the file; products beyond int32 are refused here, the byte limit
// of a tensor is checked by the caller.
Status SetSize(int64_t value, size_t dimension, Shape* shape) {
  if (value < 0 || value > INT32_MAX) {
    return CorruptModel("size %lld of dimension %zu", static_cast<long long>(value), dimension);
  }
  (*shape)[dimension] = static_cast<int32_t>(value);
  return Status();
}

// The constant [M, 2] operand of SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND beside M block sizes.
struct BlockSpec {
  std::vector<int64_t> blocks;
  std::vector<int64_t> ends;  // paddings or crops: before, after, before, ...
  int64_t product = 1;        // of the blocks
};

Result<BlockSpec> ReadBlockSpec(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 3}));
  const Shape& input = graph.Input(node, 0)->shape;
  BlockSpec spec;
  ATOLL_ASSIGN_OR_RETURN(spec.blocks, ConstantInput(graph, node, 1));
  ATOLL_ASSIGN_OR_RETURN(spec.ends, ConstantInput(graph, node, 2));
  const size_t count = spec.blocks.size();
  if (graph.Input(node, 1)->shape.size() != 1 || input.size() < 3 || count + 2 != input.size()) {
    return CorruptModel("%zu block sizes for an input of shape %s", count,
                        ShapeString(input).c_str());
  }
  const Shape& ends = graph.Input(node, 2)->shape;
  if (ends != Shape{static_cast<int32_t>(count), 2}) {
    return CorruptModel("%s has shape %s, must be [%zu, 2]",
                        Describe(graph, node.inputs[2]).c_str(), ShapeString(ends).c_str(), count);
  }
  for (size_t i = 0; i < count; ++i) {
    if (spec.blocks[i] < 1 || spec.blocks[i] > INT32_MAX ||
        __builtin_mul_overflow(spec.product, spec.blocks[i], &spec.product)) {
      return CorruptModel("block size %zu is %lld", i, static_cast<long long>(spec.blocks[i]));
    }
  }
  if (spec.product > INT32_MAX) {
    return CorruptModel("blocks of %lld elements", static_cast<long long>(spec.product));
  }
  for (const int64_t end : spec.ends) {
    if (end < 0 || end > INT32_MAX) {
      return CorruptModel("padding or crop of %lld", static_cast<long long>(end));
    }
  }
  return spec;
}

}  // namespace

Result<Shapes> InferReshape(const Graph& graph, const Node& node) {
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
  return One(Shape(target.begin(), target.end()));
}

Result<Shapes> InferSqueeze(const Graph& graph, const Node& node) {
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
  Shape output;
  for (size_t i = 0; i < input.size(); ++i) {
    if (!drop[i]) output.push_back(input[i]);
  }
  return One(std::move(output));
}

Result<Shapes> InferConcatenation(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 65536}));
  Shape output = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis,
                         CheckAxis(std::get<AxisOptions>(node.options).axis, output));
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
  return One(std::move(output));
}

Result<Shapes> InferPad(const Graph& graph, const Node& node) {
  const size_t inputs = node.type == OpType::kPADV2 ? 3 : 2;
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {inputs, inputs}));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> paddings, ConstantInput(graph, node, 1));
  const Shape& input = graph.Input(node, 0)->shape;
  const Shape& stored = graph.Input(node, 1)->shape;
  if (stored.size() != 2 || stored[0] != static_cast<int64_t>(input.size()) || stored[1] != 2) {
    return CorruptModel("paddings have shape %s, must be [%zu, 2]", ShapeString(stored).c_str(),
                        input.size());
  }
  Shape output = input;
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
  return One(std::move(output));
}

Result<Shapes> InferSlice(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(ResolvedSlice slice, ResolveSlice(graph, node));
  return One(std::move(slice.output));
}

Result<Shapes> InferSplit(const Graph& graph, const Node& node) {
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
  return Shapes(node.outputs.size(), shape);
}

Result<Shapes> InferSplitV(const Graph& graph, const Node& node) {
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
  Shapes outputs(sizes.size(), shape);
  for (size_t i = 0; i < sizes.size(); ++i) outputs[i][axis] = static_cast<int32_t>(sizes[i]);
  return outputs;
}

Result<Shapes> InferPack(const Graph& graph, const Node& node) {
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
  return One(std::move(shape));
}

Result<Shapes> InferUnpack(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1, node.outputs.size()}));
  const AxisOptions& options = std::get<AxisOptions>(node.options);
  Shape shape = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckAxis(options.axis, shape));
  if (shape[axis] != options.count || static_cast<size_t>(shape[axis]) != node.outputs.size()) {
    return CorruptModel("num is %d for %zu outputs and dimension %d of shape %s", options.count,
                        node.outputs.size(), axis, ShapeString(shape).c_str());
  }
  shape.erase(shape.begin() + axis);
  return Shapes(node.outputs.size(), shape);
}

Result<Shapes> InferExpandDims(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  Shape shape = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const int64_t stored, ConstantScalar(graph, node, 1));
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckNewAxis(stored, shape));
  shape.insert(shape.begin() + axis, 1);
  return One(std::move(shape));
}

Result<Shapes> InferArgReduction(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  Shape shape = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const int64_t stored, ConstantScalar(graph, node, 1));
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckAxis(stored, shape));
  if (shape[axis] < 1) {
    return CorruptModel("dimension %d of shape %s is empty", axis, ShapeString(shape).c_str());
  }
  shape.erase(shape.begin() + axis);
  return One(std::move(shape));
}

Result<Shapes> InferGather(const Graph& graph, const Node& node) {
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
  return One(std::move(output));
}

Result<Shapes> InferGatherNd(const Graph& graph, const Node& node) {
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
  return One(std::move(output));
}

Result<Shapes> InferTranspose(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  const Shape& input = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> order, ConstantInput(graph, node, 1));
  if (order.size() != input.size()) {
    return CorruptModel("a permutation of %zu axes for shape %s", order.size(),
                        ShapeString(input).c_str());
  }
  std::vector<bool> seen(input.size());
  Shape output;
  for (const int64_t stored : order) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t axis, CheckAxis(stored, input));
    if (seen[axis]) return CorruptModel("the permutation names axis %d twice", axis);
    seen[axis] = true;
    output.push_back(input[axis]);
  }
  return One(std::move(output));
}

Result<Shapes> InferTile(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {2, 2}));
  Shape shape = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> multiples, ConstantInput(graph, node, 1));
  if (multiples.size() != shape.size()) {
    return CorruptModel("%zu multiples for shape %s", multiples.size(), ShapeString(shape).c_str());
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (multiples[i] < 0 || multiples[i] > INT32_MAX) {
      return CorruptModel("multiple %zu is %lld", i, static_cast<long long>(multiples[i]));
    }
    ATOLL_RETURN_IF_ERROR(SetSize(shape[i] * multiples[i], i, &shape));
  }
  return One(std::move(shape));
}

Result<Shapes> InferMirrorPad(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(Shapes outputs, InferPad(graph, node));
  // The mirror image of an axis is no longer than the axis, without its edge for REFLECT.
  const bool reflect = std::get<MirrorPadOptions>(node.options).mode == MirrorPadMode::kReflect;
  const Shape& input = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> paddings, ConstantInput(graph, node, 1));
  for (size_t i = 0; i < paddings.size(); ++i) {
    const int32_t limit = input[i / 2] - (reflect ? 1 : 0);
    if (paddings[i] > std::max(0, limit)) {
      return CorruptModel("padding %lld of dimension %zu of shape %s; at most %d is mirrored",
                          static_cast<long long>(paddings[i]), i / 2, ShapeString(input).c_str(),
                          limit);
    }
  }
  return outputs;
}

Result<Shapes> InferSpaceToBatch(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const BlockSpec spec, ReadBlockSpec(graph, node));
  Shape shape = graph.Input(node, 0)->shape;
  ATOLL_RETURN_IF_ERROR(SetSize(shape[0] * spec.product, 0, &shape));
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    const int64_t padded = shape[i + 1] + spec.ends[2 * i] + spec.ends[2 * i + 1];
    if (padded % spec.blocks[i] != 0) {
      return CorruptModel("dimension %zu is %lld after padding, no multiple of the block size %lld",
                          i + 1, static_cast<long long>(padded),
                          static_cast<long long>(spec.blocks[i]));
    }
    ATOLL_RETURN_IF_ERROR(SetSize(padded / spec.blocks[i], i + 1, &shape));
  }
  return One(std::move(shape));
}

Result<Shapes> InferBatchToSpace(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const BlockSpec spec, ReadBlockSpec(graph, node));
  Shape shape = graph.Input(node, 0)->shape;
  // Of an empty batch, what is cropped may be larger than any tensor.
  Tensor whole;
  whole.type = graph.Input(node, 0)->type;
  whole.shape = shape;
  if (shape[0] % spec.product != 0) {
    return CorruptModel("%d images are no multiple of blocks of %lld", shape[0],
                        static_cast<long long>(spec.product));
  }
  shape[0] = static_cast<int32_t>(shape[0] / spec.product);
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    const int64_t size = shape[i + 1] * spec.blocks[i];
    const int64_t kept = size - spec.ends[2 * i] - spec.ends[2 * i + 1];
    if (kept < 0) {
      return CorruptModel("crops %lld and %lld of dimension %zu, which has size %lld",
                          static_cast<long long>(spec.ends[2 * i]),
                          static_cast<long long>(spec.ends[2 * i + 1]), i + 1,
                          static_cast<long long>(size));
    }
    ATOLL_RETURN_IF_ERROR(SetSize(size, i + 1, &whole.shape));
    ATOLL_RETURN_IF_ERROR(SetSize(kept, i + 1, &shape));
  }
  if (whole.shape[0] = shape[0]; !HasAllowedSize(whole)) {
    return CorruptModel("an image of shape %s before it is cropped",
                        ShapeString(whole.shape).c_str());
  }
  return One(std::move(shape));
}

Result<Shapes> InferSpaceToDepth(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 4));
  Shape shape = graph.Input(node, 0)->shape;
  const int64_t block = std::get<BlockOptions>(node.options).block_size;
  if (block < 1 || shape[1] % block != 0 || shape[2] % block != 0) {
    return CorruptModel("blocks of size %lld in shape %s", static_cast<long long>(block),
                        ShapeString(shape).c_str());
  }
  ATOLL_RETURN_IF_ERROR(SetSize(shape[1] / block, 1, &shape));
  ATOLL_RETURN_IF_ERROR(SetSize(shape[2] / block, 2, &shape));
  // At most height * width of the input in all, so this cannot overflow 64 bits.
  ATOLL_RETURN_IF_ERROR(SetSize(block * block * shape[3], 3, &shape));
  return One(std::move(shape));
}

Result<Shapes> InferDepthToSpace(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  ATOLL_RETURN_IF_ERROR(CheckRank(graph, node.inputs[0], 4));
  Shape shape = graph.Input(node, 0)->shape;
  const int64_t block = std::get<BlockOptions>(node.options).block_size;
  if (block < 1 || shape[3] % (block * block) != 0) {
    return CorruptModel("blocks of size %lld in shape %s", static_cast<long long>(block),
                        ShapeString(shape).c_str());
  }
  ATOLL_RETURN_IF_ERROR(SetSize(shape[1] * block, 1, &shape));
  ATOLL_RETURN_IF_ERROR(SetSize(shape[2] * block, 2, &shape));
  ATOLL_RETURN_IF_ERROR(SetSize(shape[3] / (block * block), 3, &shape));
  return One(std::move(shape));
}

// SHAPE: a vector with one element per dimension.
Result<Shapes> InferShapeVector(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  return One({static_cast<int32_t>(graph.Input(node, 0)->shape.size())});
}

}  // namespace atollrt
