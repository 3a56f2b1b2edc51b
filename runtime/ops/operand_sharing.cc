// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/operand_sharing.h"

#include <algorithm>
#include <initializer_list>

#include "runtime/ops/move_plan.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

// Copies of whole runs from inputs to outputs; nothing if there are others, or a fill.
std::vector<OperandSharing::Run> RunsOfMove(const Graph& graph, const Node& node) {
  const Result<MovePlan> plan = MakeMovePlan(graph, node);
  if (!plan.ok() || plan->fill.count > 0) return {};
  std::vector<OperandSharing::Run> runs;
  for (const MovePlan::Copy& copy : plan->copies) {
    if (copy.copy.run_bytes == 0) continue;
    if (!copy.copy.loops.empty() || copy.from.kind != MoveOperand::Kind::kInput ||
        copy.to.kind != MoveOperand::Kind::kOutput) {
      return {};
    }
    runs.push_back({.input = static_cast<int32_t>(copy.from.position),
                    .output = static_cast<int32_t>(copy.to.position),
                    .input_offset = copy.copy.in_offset,
                    .output_offset = copy.copy.out_offset,
                    .bytes = copy.copy.run_bytes});
  }
  return runs;
}

// Along the outermost axis that is not 1, inputs of the output's scale follow each other.
std::vector<OperandSharing::Run> RunsOfConcatenation(const Graph& graph, const Node& node) {
  const Tensor& output = graph.Output(node);
  const int32_t axis = NormalizeAxis(std::get<AxisOptions>(node.options).axis, output.shape.size());
  for (int32_t i = 0; i < axis; ++i) {
    if (output.shape[i] != 1) return {};
  }
  std::vector<OperandSharing::Run> runs;
  int64_t offset = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Result<ConcatenationPart> part = MakeConcatenationPart(graph, node, i);
    if (!part.ok() || part->rescale) return {};
    const int64_t bytes = graph.Input(node, i)->byte_size();
    if (bytes > 0) {
      runs.push_back({.input = static_cast<int32_t>(i), .output_offset = offset, .bytes = bytes});
    }
    offset += bytes;
  }
  return runs;
}

// Inputs of the output's shape and size of elements, of a node that computes element by element.
std::vector<int32_t> InputsLikeOutput(const Graph& graph, const Node& node, size_t inputs) {
  std::vector<int32_t> positions;
  const Tensor& output = graph.Output(node);
  for (size_t i = 0; i < inputs; ++i) {
    const Tensor* input = graph.Input(node, i);
    if (input != nullptr && input->shape == output.shape &&
        DataTypeSize(input->type) == DataTypeSize(output.type)) {
      positions.push_back(static_cast<int32_t>(i));
    }
  }
  return positions;
}

}  // namespace

OperandSharing SharingOf(const Graph& graph, const Node& node) {
  using enum OpType;
  const auto is_one_of = [&node](std::initializer_list<OpType> types) {
    return std::find(types.begin(), types.end(), node.type) != types.end();
  };
  if (is_one_of({kADD, kDIV, kMAXIMUM, kMINIMUM, kMUL, kPRELU, kSQUARED_DIFFERENCE, kSUB})) {
    return {.overwritable = InputsLikeOutput(graph, node, 2), .runs = {}};
  }
  if (is_one_of({kEXP, kHARD_SWISH, kLEAKY_RELU, kLOGISTIC, kQUANTIZE, kRELU, kRELU6, kRELU_N1_TO_1,
                 kRSQRT, kSQRT, kTANH})) {
    return {.overwritable = InputsLikeOutput(graph, node, 1), .runs = {}};
  }
  if (is_one_of({kEXPAND_DIMS, kPACK, kRESHAPE, kSLICE, kSPLIT, kSPLIT_V, kSQUEEZE, kSTRIDED_SLICE,
                 kTRANSPOSE, kUNPACK})) {
    return {.overwritable = {}, .runs = RunsOfMove(graph, node)};
  }
  if (node.type == kCONCATENATION) {
    return {.overwritable = {}, .runs = RunsOfConcatenation(graph, node)};
  }
  return {};
}

}  // namespace atollrt
