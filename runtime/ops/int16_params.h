// SPDX-License-Identifier: Apache-2.0
//
// The setup arithmetic of operators on int16 activations (docs/quantization.md §3, §10): zero
// points are 0, weights are int8, accumulators have 64 bits.
//
// All functions expect a graph that the loader made. Errors do not name the node; callers add it.
// Pure functions, thread-safe.
#pragma once

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/conv2d_wide.h"

namespace atollrt {

// A tensor of int16 with exactly one, positive scale, and zero point 0.
Status CheckQuantizedInt16(const char* role, const Tensor& tensor);

// The multiplier of a 64-bit accumulator; kUnsupported if it is 2^14 or more, for which
// MultiplyByQuantizedMultiplier64 is not defined.
Result<Multiplier> WideMultiplier(double real);

// CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV, FULLY_CONNECTED. `weights` of the result points at
// the model's bytes.
Result<Conv2DInt16Params> MakeConv2DInt16Params(const Graph& graph, const Node& node);

}  // namespace atollrt
