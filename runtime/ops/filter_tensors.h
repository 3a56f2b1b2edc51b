// SPDX-License-Identifier: Apache-2.0
//
// What CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED have in common, whatever
// their types: which operand is which, the geometry, and the checks of weights and biases.
//
// All functions expect a graph that the loader made. Errors do not name the node; callers add it.
// Pure functions, thread-safe.
#pragma once

#include <initializer_list>

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/conv2d_wide.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/pool2d.h"

namespace atollrt {

struct FilterTensors {
  const Tensor& input;
  const Tensor& weights;
  const Tensor* bias;  // nullptr: none
  const Tensor& output;
  int32_t channel_dimension;  // of the weights: that of the output channels
};
FilterTensors FilterTensorsOf(const Graph& graph, const Node& node);

// A fully connected layer is a 1x1 convolution of [rows, 1, 1, depth]. For TRANSPOSE_CONV, the
// geometry as transpose_conv.h wants it.
ConvShape FilterShape(const Graph& graph, const Node& node);
FilterKind FilterKindOf(const Node& node);
// The geometry and kind of a pooling node; type and clamp are left to the caller.
Pool2DParams PoolShape(const Graph& graph, const Node& node);

// The fused activation of a filter or pooling node.
Activation FusedActivation(const Node& node);

// Weights must be constants of `type`; quantized ones with one scale or one per output channel
// (uint8: one), signed ones without zero points.
Status CheckWeights(const FilterTensors& tensors, DataType type);
// A bias must be a constant of one of `types`.
Status CheckBias(const FilterTensors& tensors, std::initializer_list<DataType> types);

// The parameters of a node of float32 (in filter_ops.cc). The weights are borrowed from the graph.
Result<Conv2DFloatParams> MakeConv2DFloatParams(const Graph& graph, const Node& node);

}  // namespace atollrt
