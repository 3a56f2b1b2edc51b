// SPDX-License-Identifier: Apache-2.0
//
// What the vector unit computes from one tensor.
#include "delegate/lowering.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

class MeanLowering final : public NodeLowering {
 public:
  MeanLowering(const Graph& graph, const Node& node, const MeanParams& params)
      : NodeLowering(graph, node), params_(params) {}

  void Emit(const OperandPlaces& place, RowRange,
            std::vector<Instruction>* program) const override {
    MeanInstruction i;
    i.input_address = InputAddress(place, 0);
    i.output_address = OutputAddress(place, 0);
    i.batch = params_.batch;
    i.positions = params_.positions;
    i.channels = params_.channels;
    i.flags = UnsignedFlag(params_.type, kFlagInputUnsigned);
    i.input_zero_point = params_.input_zero_point;
    i.multiplier = params_.multiplier.value;
    i.exponent = InstructionExponent(params_.multiplier.exponent);
    i.output_zero_point = params_.output_zero_point;
    i.clamp_min = params_.clamp.min;
    i.clamp_max = params_.clamp.max;
    program->push_back(i);
  }

 private:
  const MeanParams params_;
};

class TableLowering final : public NodeLowering {
 public:
  TableLowering(const Graph& graph, const Node& node, const LookupTable& table)
      : NodeLowering(graph, node) {
    AddParameters(table);
  }

  bool divides_into_rows() const override { return IsImage(output()); }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<Instruction>* program) const override {
    program->push_back(TableInstruction{.input_address = InputAddress(place, 0, rows.begin),
                                        .output_address = OutputAddress(place, 0, rows.begin),
                                        .count = CountOf(rows),
                                        .table_address = place.parameters});
  }
};

}  // namespace

Lowering LowerMean(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const MeanPlan plan, MakeMeanPlan(graph, node));
  return std::unique_ptr<const NodeLowering>(
      std::make_unique<MeanLowering>(graph, node, plan.params));
}

Lowering LowerTable(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph, node));
  return std::unique_ptr<const NodeLowering>(std::make_unique<TableLowering>(graph, node, table));
}

}  // namespace atollrt
