// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, fully-connected layers and pooling on the CPU.

#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

// Conv2D or DepthwiseConv2D.
template <typename Kernel>
class FilterExecutor final : public NodeExecutor {
 public:
  explicit FilterExecutor(Kernel kernel) : kernel_(std::move(kernel)) {}
  size_t ScratchBytes(int threads) const override { return kernel_.ScratchBytes(threads); }
  Status Invoke(const NodeIo& io) override {
    kernel_.Run(io.inputs[0], io.outputs[0], io.scratch, io.pool);
    return Status();
  }

 private:
  const Kernel kernel_;
};

template <typename Kernel, typename Params>
Executor RunFilter(Result<Params> params, CpuFeatures features) {
  if (!params.ok()) return params.status();
  ATOLL_ASSIGN_OR_RETURN(Kernel kernel, Kernel::Prepare(*params, features));
  return std::unique_ptr<NodeExecutor>(std::make_unique<FilterExecutor<Kernel>>(std::move(kernel)));
}

}  // namespace

Executor PrepareConv2D(const Graph& graph, const Node& node, CpuFeatures features) {
  return RunFilter<Conv2D>(MakeConv2DParams(graph, node), features);
}

Executor PrepareFullyConnected(const Graph& graph, const Node& node, CpuFeatures features) {
  return RunFilter<Conv2D>(MakeFullyConnectedParams(graph, node), features);
}

Executor PrepareDepthwiseConv2D(const Graph& graph, const Node& node, CpuFeatures features) {
  return RunFilter<DepthwiseConv2D>(MakeDepthwiseConv2DParams(graph, node), features);
}

Executor PreparePool2D(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const Pool2DParams params, MakePool2DParams(graph, node));
  return Run([params](const NodeIo& io) { Pool2D(params, io.inputs[0], io.outputs[0]); });
}

}  // namespace atollrt
