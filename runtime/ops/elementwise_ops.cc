// SPDX-License-Identifier: Apache-2.0
//
// Operators that treat every element alike, with broadcasting where they take two.
#include <vector>

#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

// A tensor repeated into a larger shape, as the source byte of every output byte: sizes and
// source strides from the innermost dimension outwards.
struct BroadcastView {
  std::vector<int32_t> sizes;
  std::vector<int64_t> strides;
  bool is_identity = true;
};

BroadcastView MakeBroadcastView(const Shape& source, const Shape& target) {
  BroadcastView view;
  int64_t stride = 1;
  for (size_t i = 0; i < target.size(); ++i) {
    const int32_t size = target[target.size() - 1 - i];
    const int32_t own = i < source.size() ? source[source.size() - 1 - i] : 1;
    view.sizes.push_back(size);
    view.strides.push_back(own == 1 ? 0 : stride);
    view.is_identity = view.is_identity && own == size;
    stride *= own;
  }
  return view;
}

// Writes the broadcast tensor out, `dimension` counting from the outermost (sizes.size() - 1).
uint8_t* Expand(const BroadcastView& view, int dimension, const uint8_t* source, uint8_t* out) {
  if (dimension < 0) {
    *out = *source;
    return out + 1;
  }
  for (int32_t i = 0; i < view.sizes[dimension]; ++i) {
    out = Expand(view, dimension - 1, source, out);
    source += view.strides[dimension];
  }
  return out;
}

}  // namespace

Executor PrepareTable(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph, node));
  const int64_t count = graph.Output(node).element_count();
  return Run(
      [table, count](const NodeIo& io) { ApplyTable(table, io.inputs[0], io.outputs[0], count); });
}

Executor PrepareAdd(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_ASSIGN_OR_RETURN(const AddParams params, MakeAddParams(graph, node));
  const Tensor& output = graph.Output(node);
  const int64_t count = output.element_count();
  const BroadcastView a = MakeBroadcastView(graph.Input(node, 0)->shape, output.shape);
  const BroadcastView b = MakeBroadcastView(graph.Input(node, 1)->shape, output.shape);
  const AddFn add = ChooseAdd(features);
  if (a.is_identity && b.is_identity) {
    return Run([params, count, add](const NodeIo& io) {
      add(params, io.inputs[0], io.inputs[1], io.outputs[0], count);
    });
  }
  // Both operands are written out in full; broadcasts are small in real models.
  const auto broadcast_add = [params, count, add, a, b](const NodeIo& io) {
    const int outermost = static_cast<int>(a.sizes.size()) - 1;
    uint8_t* wide_a = io.scratch;
    uint8_t* wide_b = Expand(a, outermost, io.inputs[0], wide_a);
    Expand(b, outermost, io.inputs[1], wide_b);
    add(params, wide_a, wide_b, io.outputs[0], count);
  };
  return Run(broadcast_add, static_cast<size_t>(2 * count));
}

}  // namespace atollrt
