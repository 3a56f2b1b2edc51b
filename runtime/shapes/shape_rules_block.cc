// SPDX-License-Identifier: Apache-2.0
//
// Shape rules of operators that rearrange: transpositions, repetitions, blocks and mirrors.
#include <algorithm>
#include <utility>

#include "runtime/shapes/shape_rules.h"

namespace atollrt {
namespace {

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

Status InferTranspose(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
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
  outputs->push_back(std::move(output));
  return Status();
}

Status InferTile(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
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
  outputs->push_back(std::move(shape));
  return Status();
}

Status InferMirrorPad(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(InferPad(graph, node, outputs));
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
  return Status();
}

Status InferSpaceToBatch(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
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
  outputs->push_back(std::move(shape));
  return Status();
}

Status InferBatchToSpace(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
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
  outputs->push_back(std::move(shape));
  return Status();
}

Status InferSpaceToDepth(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
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
  outputs->push_back(std::move(shape));
  return Status();
}

Status InferDepthToSpace(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
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
  outputs->push_back(std::move(shape));
  return Status();
}

// SHAPE: a vector with one element per dimension.
Status InferShapeVector(const Graph& graph, const Node& node, std::vector<Shape>* outputs) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {1, 1}));
  outputs->push_back({static_cast<int32_t>(graph.Input(node, 0)->shape.size())});
  return Status();
}

}  // namespace atollrt
