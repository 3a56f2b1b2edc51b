// SPDX-License-Identifier: Apache-2.0
//
// Shape rules: how the shapes of an operator's outputs follow from its inputs, one function per
// operator or family. Part of shape inference (shape_inference.h); the list of operators
// (graph/operators.inc) says which serves which.
#pragma once

#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {

// Checks counts, ranks, axes and sizes, and gives one shape per output. Errors do not name the
// node; the caller adds it. Data types are not judged here.
using Shapes = std::vector<Shape>;
using ShapeRule = Result<Shapes> (*)(const Graph& graph, const Node& node);

#define ATOLL_OP(name, number, version, types, Infer, Prepare) \
  Result<Shapes> Infer(const Graph& graph, const Node& node);
#define ATOLL_CUSTOM_OP(name, types, Infer, Prepare, Options) \
  ATOLL_OP(name, 32, 1, types, Infer, Prepare)
#define ATOLL_OP_APART(name, number, version, types, Infer, Prepare) \
  ATOLL_OP(name, number, version, types, Infer, Prepare)
#include "runtime/graph/operators.inc"
// The rule of an operator that libatoll-core does not have (ops/apart_ops.h); nullptr there.
ShapeRule ApartShapeRule(OpType type);

// ---- What rules share -------------------------------------------------------------------------

// The shapes of a single output.
Result<Shapes> One(Shape shape);

// Between min_inputs and max_inputs inputs, of which the first min_inputs are present, and exactly
// `outputs` outputs.
struct NodeCounts {
  size_t min_inputs = 0, max_inputs = 0;
  size_t outputs = 1;
};
Status CheckCounts(const Node& node, const NodeCounts& counts);

// The tensor has `rank` dimensions, all at least 1.
Status CheckRank(const Graph& graph, int32_t tensor, size_t rank);

// A bias, if there is one, has an element for each channel (unit).
Status CheckBiasSize(const Tensor* bias, int32_t channels, const char* name);

// 1 to 65535: strides, dilations, filter sizes.
Status CheckWindowParameter(const char* name, int32_t value);

// The values of a constant int32 or int64 input (axes, sizes, paddings). kUnsupported if the
// tensor is computed at run time.
Result<std::vector<int64_t>> ConstantInput(const Graph& graph, const Node& node, size_t position);

// `axis` as NormalizeAxis, or kCorruptModel.
Result<int32_t> CheckAxis(int64_t axis, const Shape& shape);

}  // namespace atollrt
