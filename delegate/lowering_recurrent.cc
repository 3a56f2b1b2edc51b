// SPDX-License-Identifier: Apache-2.0
//
// Layers with a state, which their instructions read and write where it lies.
#include "delegate/lowering.h"
#include "runtime/ops/recurrent_params.h"

namespace atollrt {
namespace {

class LstmLowering final : public NodeLowering {
 public:
  LstmLowering(const Graph& graph, const Node& node, const LstmParams& params)
      : NodeLowering(graph, node) {
    instruction_.batch = params.batch;
    instruction_.steps = params.steps;
    instruction_.inputs = params.inputs;
    instruction_.units = params.units;
    instruction_.time_major = params.layout == LstmLayout::kTimeMajor ? 1 : 0;
    instruction_.cell_integer_bits = params.cell_integer_bits;
    instruction_.cell_clip = params.cell_clip;
    instruction_.hidden_multiplier = params.hidden_multiplier.value;
    instruction_.hidden_exponent = InstructionExponent(params.hidden_multiplier.exponent);
    instruction_.hidden_zero_point = params.hidden_zero_point;
    // Both products in one block each.
    std::vector<uint8_t> weights, records;
    const auto append = [&](const LstmProduct& product, int32_t columns) {
      const size_t gate_bytes = static_cast<size_t>(params.units) * static_cast<size_t>(columns);
      for (const int8_t* gate : product.weights) {
        weights.insert(weights.end(), gate, gate + gate_bytes);
      }
      const std::vector<uint8_t> bytes =
          ChannelRecords(RequantizeMode::kFixedPoint, product.channels);
      records.insert(records.end(), bytes.begin(), bytes.end());
    };
    append(params.input, params.inputs);
    append(params.recurrent, params.units);
    instruction_.weight_address = AddParameters(weights);
    instruction_.channel_address = AddParameters(records);
  }

  void Emit(const OperandPlaces& place, RowRange,
            std::vector<Instruction>* program) const override {
    LstmInstruction i = instruction_;
    i.input_address = InputAddress(place, 0);
    i.weight_address += place.parameters;
    i.channel_address += place.parameters;
    i.hidden_address = InputAddress(place, kLstmHidden);
    i.cell_address = InputAddress(place, kLstmCell);
    i.output_address = OutputAddress(place, 0);
    program->push_back(i);
  }

 private:
  LstmInstruction instruction_;  // addresses of parameters are offsets in them, others absent
};

}  // namespace

Lowering LowerLstm(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const LstmParams params, MakeLstmParams(graph, node));
  return std::unique_ptr<const NodeLowering>(std::make_unique<LstmLowering>(graph, node, params));
}

}  // namespace atollrt
