// SPDX-License-Identifier: Apache-2.0
//
// The CPU's operators: a node of the graph -> an executor that is ready to run.
#pragma once

#include <memory>
#include <span>

#include "runtime/base/buffer.h"
#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/node_executor.h"

namespace atollrt {

// The newest version of an operator that Atoll knows; 0 for operators that it does not have.
int32_t NewestKnownVersion(OpType type);

// Checks the node against what the CPU can do and binds it to its kernel. `graph` must outlive
// the executor (constants are used in place). Inputs and outputs of the executor are those of the
// node, in order. kUnsupported for unknown operators, versions or types; kCorruptModel for
// contradictions; the message names the node.
Result<std::unique_ptr<NodeExecutor>> PrepareCpuNode(const Graph& graph, const Node& node,
                                                     CpuFeatures features);

// Runs a node whose inputs are constants, or a SHAPE, into `outputs`, one buffer each of the
// tensor's size. Errors as for PrepareCpuNode, and those of NodeExecutor::Invoke.
Status EvaluateNode(const Graph& graph, const Node& node, std::span<Buffer> outputs);

}  // namespace atollrt
