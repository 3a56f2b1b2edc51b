// SPDX-License-Identifier: Apache-2.0
//
// The CPU's operators: a node of the graph -> an executor that is ready to run.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/ops/node_executor.h"
#include "runtime/ops/type_set.h"

namespace atollrt {

// Checks types and quantization of a node (its shapes are right already: InferShapes), computes
// everything that Invoke will need and binds it. Errors do not name the node; the caller adds it.
using PrepareNode = Result<std::unique_ptr<NodeExecutor>> (*)(const Graph& graph, const Node& node,
                                                              CpuFeatures features);

// A line of graph/operators.inc, as far as it concerns the CPU.
struct CpuOp {
  OpType type = OpType::kCUSTOM;
  const char* custom_name = "";  // of OpType::kCUSTOM
  int32_t max_version = 0;       // the newest known one
  TypeSet types = types::kNone;  // that its data may have
  PrepareNode prepare = nullptr;
};

// All operators that the CPU has, by name; the custom ones are the last.
std::span<const CpuOp> CpuOps();

// The newest version of an operator that Atoll knows; 0 for operators that it does not have.
int32_t NewestKnownVersion(OpType type);

// Checks the node against what the CPU can do and binds it to its kernel. `graph` must outlive
// the executor (constants are used in place). Inputs and outputs of the executor are those of the
// node, in order. kUnsupported for unknown operators, versions or types; kCorruptModel for
// contradictions; the message names the node.
Result<std::unique_ptr<NodeExecutor>> PrepareCpuNode(const Graph& graph, const Node& node,
                                                     CpuFeatures features);

// The same for a convolution of bytes, or a depthwise one of float32, together with `pad`, the PAD
// that makes its input 0: the executor reads what `pad` reads instead. nullptr if one cannot stand
// for both.
Result<std::unique_ptr<NodeExecutor>> PreparePaddedFilter(const Graph& graph, const Node& pad,
                                                          const Node& node, CpuFeatures features);

// The same for a convolution of bytes, `filter`, together with `node`, an operator of two tensors
// of one size, `position` of whose inputs the convolution writes; its executor has the inputs of
// the convolution's, then the other operand. nullptr if one cannot stand for both. `filter` is
// borrowed.
Result<std::unique_ptr<NodeExecutor>> PrepareTailedFilter(const Graph& graph,
                                                          const NodeExecutor& filter,
                                                          const Node& node, size_t position,
                                                          CpuFeatures features);

// The weights of a convolution or a fully connected layer of bytes as its kernel for a CPU with
// `features` packs them, to become Tensor::packed_weights of input 1; empty for all other nodes.
std::vector<uint8_t> PackWeights(const Graph& graph, const Node& node, CpuFeatures features);

// How many bytes of weights the executor of a node keeps, about, as many or more: filters and
// recurrent layers have them in an order of their own, with what that takes in addition. 0 for all
// other nodes.
int64_t KeptWeightBytes(const Graph& graph, const Node& node);

// Runs a node whose inputs are constants, or a SHAPE, into `outputs`, one buffer each of the
// tensor's size. Errors as for PrepareCpuNode, and those of NodeExecutor::Invoke.
Status EvaluateNode(const Graph& graph, const Node& node, std::span<Buffer> outputs);

}  // namespace atollrt
