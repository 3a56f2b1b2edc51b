// SPDX-License-Identifier: Apache-2.0
//
// EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER and GREATER_EQUAL, with broadcasting: bytes by the
// real values that they stand for, other types plainly.
#include "runtime/ops/broadcast_executor.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

Comparison ComparisonOf(OpType type) {
  switch (type) {
    case OpType::kEQUAL:
      return Comparison::kEqual;
    case OpType::kNOT_EQUAL:
      return Comparison::kNotEqual;
    case OpType::kLESS:
      return Comparison::kLess;
    case OpType::kLESS_EQUAL:
      return Comparison::kLessEqual;
    case OpType::kGREATER:
      return Comparison::kGreater;
    default:
      return Comparison::kGreaterEqual;
  }
}

NumberOp NumberOpOf(OpType type) {
  switch (type) {
    case OpType::kEQUAL:
      return NumberOp::kEqual;
    case OpType::kNOT_EQUAL:
      return NumberOp::kNotEqual;
    case OpType::kLESS:
      return NumberOp::kLess;
    case OpType::kLESS_EQUAL:
      return NumberOp::kLessEqual;
    case OpType::kGREATER:
      return NumberOp::kGreater;
    default:
      return NumberOp::kGreaterEqual;
  }
}

}  // namespace

Executor PrepareComparison(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, *graph.Input(node, 1)));
  if (output.type != DataType::kBool) {
    return CorruptModel("output '%s' has type %s, must be bool", output.name.c_str(),
                        DataTypeName(output.type));
  }
  switch (input.type) {
    case DataType::kUInt8:
    case DataType::kInt8: {
      ATOLL_ASSIGN_OR_RETURN(const PairParams params, MakePairParams(graph, node));
      return Run([params, comparison = ComparisonOf(node.type),
                  broadcast = BroadcastOf(graph, node)](const NodeIo& io) {
        Compare(comparison, params, broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool);
      });
    }
    case DataType::kFloat32:
    case DataType::kInt32:
    case DataType::kInt64:
      return RunNumbers(graph, node, features, NumberOpOf(node.type));
    case DataType::kBool:
      if (node.type == OpType::kEQUAL || node.type == OpType::kNOT_EQUAL) {
        return RunNumbers(graph, node, features, NumberOpOf(node.type));
      }
      return UnsupportedType(input);
    default:
      return UnsupportedType(input);
  }
}

}  // namespace atollrt
