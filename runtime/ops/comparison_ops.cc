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

template <typename T>
Executor RunComparison(const Graph& graph, const Node& node) {
  Executor executor = InternalError("no comparison");
  WithComparison(ComparisonOf(node.type), [&](auto holds) {
    executor = RunPairs<T, uint8_t>(
        graph, node, [holds](T a, T b) { return static_cast<uint8_t>(holds(a, b)); });
  });
  return executor;
}

}  // namespace

Executor PrepareComparison(const Graph& graph, const Node& node, CpuFeatures) {
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
        Compare(comparison, params, broadcast, io.inputs[0], io.inputs[1], io.outputs[0]);
      });
    }
    case DataType::kFloat32:
      return RunComparison<float>(graph, node);
    case DataType::kInt32:
      return RunComparison<int32_t>(graph, node);
    case DataType::kInt64:
      return RunComparison<int64_t>(graph, node);
    case DataType::kBool:
      if (node.type == OpType::kEQUAL || node.type == OpType::kNOT_EQUAL) {
        return RunComparison<uint8_t>(graph, node);
      }
      return UnsupportedType(input);
    default:
      return UnsupportedType(input);
  }
}

}  // namespace atollrt
