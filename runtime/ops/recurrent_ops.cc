// SPDX-License-Identifier: Apache-2.0
//
// Layers with a memory on the CPU: UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF.
#include "runtime/ops/executors.h"
#include "runtime/ops/recurrent_params.h"

namespace atollrt {
namespace {

const int8_t* AsInt8(const uint8_t* bytes) { return reinterpret_cast<const int8_t*>(bytes); }
int8_t* AsInt8(uint8_t* bytes) { return reinterpret_cast<int8_t*>(bytes); }

}  // namespace

Executor PrepareLstm(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(LstmParams params, MakeLstmParams(graph, node));
  const size_t scratch = LstmScratchBytes(params);
  const auto lstm = [params = std::move(params)](const NodeIo& io) {
    Lstm(params, AsInt8(io.inputs[0]), AsInt8(io.state[kLstmHidden]), io.state[kLstmCell],
         AsInt8(io.outputs[0]), io.scratch);
  };
  return Run(lstm, scratch);
}

// The fused activation, RELU in published models, changes nothing: TensorFlow Lite applies none to
// the integer form.
Executor PrepareSvdf(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const SvdfParams params, MakeSvdfParams(graph, node));
  return Run([params](const NodeIo& io) {
    Svdf(params, AsInt8(io.inputs[0]), reinterpret_cast<int16_t*>(io.state[4]),
         AsInt8(io.outputs[0]));
  });
}

}  // namespace atollrt
