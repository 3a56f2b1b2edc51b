// SPDX-License-Identifier: Apache-2.0
//
// What the operators of two broadcast tensors share. Not for use outside this folder.
#pragma once

#include "runtime/kernels/broadcast.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {

inline Status UnsupportedType(const Tensor& tensor) {
  return Unsupported("'%s' has type %s, which this operator is not computed in",
                     tensor.name.c_str(), DataTypeName(tensor.type));
}

// The loops of a node's first two inputs.
inline Broadcast BroadcastOf(const Graph& graph, const Node& node) {
  return MakeBroadcast(graph.Input(node, 0)->shape, graph.Input(node, 1)->shape);
}

// Both inputs and the output have the same type.
inline Status CheckPairTypes(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), *graph.Input(node, 1)));
  return CheckSameType(*graph.Input(node, 0), graph.Output(node));
}

// An executor that computes Out function(In, In) for every pair of elements.
template <typename In, typename Out, typename Function>
Executor RunPairs(const Graph& graph, const Node& node, Function function) {
  return Run([broadcast = BroadcastOf(graph, node), function](const NodeIo& io) {
    CombineElements<In, Out>(broadcast, io.inputs[0], io.inputs[1], io.outputs[0], function);
  });
}

}  // namespace atollrt
