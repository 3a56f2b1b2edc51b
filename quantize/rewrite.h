// SPDX-License-Identifier: Apache-2.0
//
// Rewriting a float graph into one that computes the same with fewer roundings once it is
// quantized: what depends on constants alone is computed; weights of int8 or float16 become
// float32; batch normalization (MUL, ADD and their like by a constant per channel) goes into the
// convolution before it; RELU, RELU6 and RELU_N1_TO_1 become the activation of the one node before;
// PAD before a convolution becomes SAME where that is the same; x * relu6(x + 3) / 6 becomes
// HARD_SWISH.
#pragma once

#include "atoll/status.h"
#include "quantize/edited_graph.h"

namespace atollrt {

// Constants of bytes with scales, in nodes that compute floats, become floats.
Status DequantizeWeights(EditedGraph* edited);

// The graph stays as graph.h says. kUnsupported if activations are quantized already.
Status RewriteFloatGraph(EditedGraph* edited);

}  // namespace atollrt
