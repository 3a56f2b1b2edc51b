// SPDX-License-Identifier: Apache-2.0
//
// From a node of the graph to the parameters of a kernel: the checks of types and quantization,
// and the setup arithmetic (multipliers, clamps, windows) of docs/quantization.md §2-6. The CPU
// operators and the compiler both use these, so the device gets the same numbers as the CPU.
//
// All functions expect a graph that the loader made. Errors do not name the node; callers add it.
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/conv2d_wide.h"
#include "runtime/kernels/depthwise/depthwise_conv2d.h"
#include "runtime/kernels/lookup_table.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/pool2d.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/kernels/reduce.h"
#include "runtime/kernels/resize.h"

namespace atollrt {

// The range that a fused activation leaves of `output`'s type, int8, uint8 or int16. kUnsupported
// for TANH and SIGN_BIT, which TensorFlow Lite does not fuse into quantized operators either.
Result<ClampRange> FusedClamp(const Tensor& output, Activation activation);

// `weights` of the results point at the model's bytes. Only byte types (int8, or uint8
// throughout) are accepted: kUnsupported otherwise. CONV_2D and TRANSPOSE_CONV (filter_tensors.h):
Result<Conv2DParams> MakeConv2DParams(const Graph& graph, const Node& node);
// FULLY_CONNECTED as a 1x1 convolution of [rows, 1, 1, depth].
Result<Conv2DParams> MakeFullyConnectedParams(const Graph& graph, const Node& node);
Result<DepthwiseConv2DParams> MakeDepthwiseConv2DParams(const Graph& graph, const Node& node);
// The same of int16 activations (docs/quantization.md §3, §10): zero points are 0, weights are
// int8, accumulators have 64 bits.
Result<Conv2DInt16Params> MakeConv2DInt16Params(const Graph& graph, const Node& node);
// The multiplier of a 64-bit accumulator; kUnsupported if it is 2^14 or more, for which
// MultiplyByQuantizedMultiplier64 is not defined.
Result<Multiplier> WideMultiplier(double real);

Result<Pool2DParams> MakePool2DParams(const Graph& graph, const Node& node);
// int8 or uint8; int8 also to int16.
Result<SoftmaxParams> MakeSoftmaxParams(const Graph& graph, const Node& node);

// The multiplier from a sum of `count` codes to the output's, with the division folded in for MEAN
// (docs/quantization.md §7). Both tensors must have one positive scale.
Result<Multiplier> MakeSumMultiplier(OpType type, const Tensor& input, const Tensor& output,
                                     int64_t count);

// Which axes of its input MEAN, SUM, REDUCE_MAX or REDUCE_MIN reduces.
std::vector<bool> ReducedAxes(const Graph& graph, const Node& node);
// MEAN and SUM of bytes over these axes.
Result<ByteSumParams> MakeByteSumParams(const Graph& graph, const Node& node);
// REDUCE_MAX and REDUCE_MIN of any type: their output means what their input means.
Status CheckExtremes(const Graph& graph, const Node& node);

// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of any type.
Result<ResizeParams> MakeResizeParams(const Graph& graph, const Node& node);

// QUANTIZE between byte types, RELU, RELU6, RELU_N1_TO_1, LOGISTIC, TANH, EXP, HARD_SWISH,
// LEAKY_RELU, RSQRT (int8 only; elements below the zero point are the caller's to refuse).
Result<LookupTable> MakeNodeTable(const Graph& graph, const Node& node);

// The table that brings input `position` of a CONCATENATION to the output's quantization, and
// whether it changes anything (docs/quantization.md §7).
struct ConcatenationPart {
  bool rescale = false;
  LookupTable table;
};
Result<ConcatenationPart> MakeConcatenationPart(const Graph& graph, const Node& node,
                                                size_t position);

}  // namespace atollrt
