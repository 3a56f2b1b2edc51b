// SPDX-License-Identifier: Apache-2.0
//
// What the operators of two broadcast tensors share. Not for use outside this folder.
#pragma once

#include <optional>

#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/ops/element_types.h"
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
    CombineElements<In, Out>(broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool,
                             function);
  });
}

// An executor of a loop over pairs of numbers; kUnsupported if `op` is not computed in the inputs'
// type. The results have the inputs' size, those of comparisons are bytes.
inline Executor RunNumbers(const Graph& graph, const Node& node, CpuFeatures features, NumberOp op,
                           const NumberBounds& bounds = {}) {
  const Tensor& input = *graph.Input(node, 0);
  const std::optional<Element> element = ElementOf(input.type);
  const NumberPairFn combine =
      element.has_value() ? ChooseRowLoops(features).number_pair(op, *element) : nullptr;
  if (combine == nullptr) return UnsupportedType(input);
  const size_t in_bytes = DataTypeSize(input.type);
  const int64_t out_bytes = op >= NumberOp::kEqual ? 1 : static_cast<int64_t>(in_bytes);
  return Run([=, broadcast = BroadcastOf(graph, node)](const NodeIo& io) {
    ForEachBlock(broadcast, in_bytes, io.inputs[0], io.inputs[1], io.pool, kParallelGrain,
                 [&](const uint8_t* x1, const uint8_t* x2, int64_t offset, int64_t count) {
                   combine(bounds, x1, x2, io.outputs[0] + offset * out_bytes, count);
                 });
  });
}

}  // namespace atollrt
