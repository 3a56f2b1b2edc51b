// SPDX-License-Identifier: Apache-2.0
//
// What the vector unit computes from one tensor.
#include "delegate/lowering.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

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

Lowering LowerTable(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph, node));
  return std::unique_ptr<const NodeLowering>(std::make_unique<TableLowering>(graph, node, table));
}

}  // namespace atollrt
