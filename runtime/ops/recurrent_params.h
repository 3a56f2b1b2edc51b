// SPDX-License-Identifier: Apache-2.0
//
// The setup arithmetic of layers with a memory (docs/quantization.md §11): the params of their
// kernels from a node. Used by the CPU operators and by the compiler for the device.
//
// All functions expect a graph that the loader made. Errors do not name the node; callers add it.
// Pure functions, thread-safe. Params borrow the weights of the graph.
#pragma once

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/recurrent.h"

namespace atollrt {

// The inputs of UNIDIRECTIONAL_SEQUENCE_LSTM that are its state: variable tensors.
inline constexpr size_t kLstmHidden = 18;
inline constexpr size_t kLstmCell = 19;

// kUnsupported for other types than int8 with an int16 cell, activations other than TANH and cell
// scales that are no power of two.
Result<LstmParams> MakeLstmParams(const Graph& graph, const Node& node);

Result<SvdfParams> MakeSvdfParams(const Graph& graph, const Node& node);

}  // namespace atollrt
