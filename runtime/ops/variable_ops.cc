// SPDX-License-Identifier: Apache-2.0
//
// Operators on the variables of a model. The loader has resolved all handles (graph/variables.h)
// and the interpreter binds the variable itself to the operand that is its handle, so what is left
// is copying. CALL_ONCE is run by the interpreter, which has the other graphs.
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/ops/executors.h"

namespace atollrt {

Executor PrepareCallOnce(const Graph&, const Node&, CpuFeatures) {
  return Run([](const NodeIo&) {});
}

Executor PrepareVarHandle(const Graph&, const Node& node, CpuFeatures) {
  const int32_t variable = std::get<VarHandleOptions>(node.options).variable;
  return Run([variable](const NodeIo& io) { StoreLittleEndian(io.outputs[0], variable); });
}

Executor PrepareReadVariable(const Graph& graph, const Node& node, CpuFeatures) {
  const size_t bytes = static_cast<size_t>(graph.Output(node).byte_size());
  return Run([bytes](const NodeIo& io) {
    if (bytes > 0) std::memcpy(io.outputs[0], io.state[0], bytes);
  });
}

Executor PrepareAssignVariable(const Graph& graph, const Node& node, CpuFeatures) {
  const size_t bytes = static_cast<size_t>(graph.Input(node, 1)->byte_size());
  return Run([bytes](const NodeIo& io) {
    if (bytes > 0) std::memcpy(io.state[0], io.inputs[1], bytes);
  });
}

}  // namespace atollrt
