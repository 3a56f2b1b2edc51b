// SPDX-License-Identifier: Apache-2.0
//
// What a single instruction computes of one tensor: element by element, along rows, by reduction,
// by resizing; and layers with a state, which their instruction reads and writes where it lies.
#include "delegate/lowering.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/recurrent_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// TABLE, SOFTMAX, L2_NORMALIZATION and reductions. `instruction` has everything but addresses and
// sizes. Rows of the image, if it is one, correspond one to one, unless they are what is reduced.
template <typename Instruction>
class RowsLowering final : public NodeLowering {
 public:
  RowsLowering(const Graph& graph, const Node& node, const Instruction& instruction)
      : NodeLowering(graph, node), instruction_(instruction) {}
  RowsLowering(const Graph& graph, const Node& node, const LookupTable& table)
      : NodeLowering(graph, node) {
    AddParameters(table);
  }

  bool divides_into_rows() const override {
    return IsImage(input(0)) && IsImage(output()) && RowCount(input(0)) == RowCount(output());
  }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<atollrt::Instruction>* program) const override {
    Instruction i = instruction_;
    i.input_address = InputAddress(place, 0, rows.begin);
    i.output_address = OutputAddress(place, 0, rows.begin);
    if constexpr (ReductionInstruction<Instruction>) {
      Shape shape = input(0).shape;
      if (divides_into_rows()) shape[1] = rows.count();
      SetAxes(MakeReducePlan(shape, ReducedAxes(graph_, node_)), &i);
    } else if constexpr (requires { i.table_address; }) {
      i.count = CountOf(rows);
      i.table_address = place.parameters;
    } else {
      i.rows = CountOf(rows) / i.depth;
    }
    program->push_back(i);
  }

 private:
  // The innermost loops come last, as lanes.
  static void SetAxes(const ReducePlan& plan, Instruction* i) {
    uint32_t* const kept[] = {&i->kept0, &i->kept1, &i->kept2};
    uint32_t* const reduced[] = {&i->reduced0, &i->reduced1, &i->reduced2};
    for (uint32_t* size : kept) *size = 1;
    for (uint32_t* size : reduced) *size = 1;
    size_t place = 2;  // of the pair of axes to fill next
    for (size_t loop = plan.loops.size(); loop-- > 0;) {
      const bool is_reduced = plan.loops[loop].out_stride == 0;
      *(is_reduced ? reduced : kept)[place] = Word(plan.loops[loop].count);
      if (!is_reduced) --place;
    }
  }

  const Instruction instruction_;
};

template <typename Instruction>
Lowering LowerRows(const Graph& graph, const Node& node, const Instruction& instruction) {
  return MakeLowering<RowsLowering<Instruction>>(graph, node, instruction);
}

template <typename Instruction>
Lowering LowerExtreme(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckExtremes(graph, node));
  Instruction i;
  i.flags = UnsignedFlag(ToByteType(graph.Input(node, 0)->type), kFlagInputUnsigned);
  return LowerRows(graph, node, i);
}

// A band of output rows is made from a band of input rows; the instruction knows where both lie in
// the whole images. `flags` are those of RESIZE_BILINEAR.
template <ResizeInstruction Instruction>
class ResizeLowering final : public NodeLowering {
 public:
  ResizeLowering(const Graph& graph, const Node& node, const ResizeParams& params, ByteType type)
      : NodeLowering(graph, node), params_(params), type_(type) {}

  bool divides_into_rows() const override { return IsImage(output()); }

  RowRange InputRows(size_t, RowRange rows) const override {
    const ResizeRows from = RowsUnder({rows.begin, rows.count()});
    return {from.first, from.first + from.count};
  }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<atollrt::Instruction>* program) const override {
    ResizeBand band = WholeImages(params_);
    if (divides_into_rows()) {
      band.output = {rows.begin, rows.count()};
      band.input = RowsUnder(band.output);
    }
    Instruction i;
    i.input_address = InputAddress(place, 0, band.input.first);
    i.output_address = OutputAddress(place, 0, band.output.first);
    i.batch = params_.batch;
    i.input_h = params_.input_h;
    i.input_w = params_.input_w;
    i.channels = params_.channels;
    i.output_h = params_.output_h;
    i.output_w = params_.output_w;
    i.input_first = band.input.first;
    i.input_rows = band.input.count;
    i.output_first = band.output.first;
    i.output_rows = band.output.count;
    i.mode = static_cast<uint32_t>(params_.mode);
    if constexpr (kIsBilinear) i.flags = UnsignedFlag(type_, kFlagInputUnsigned);
    program->push_back(i);
  }

 private:
  static constexpr bool kIsBilinear = std::is_same_v<Instruction, ResizeBilinearInstruction>;

  ResizeRows RowsUnder(ResizeRows output) const {
    if (!kIsBilinear) return NearestInputRows(params_, output);
    const bool is_unsigned = type_ == ByteType::kUInt8;
    return BilinearInputRows(params_, is_unsigned ? ResizeType::kUInt8 : ResizeType::kInt8, output);
  }

  const ResizeParams params_;
  const ByteType type_;
};

template <typename Instruction>
Lowering LowerResize(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const ResizeParams params, MakeResizeParams(graph, node));
  return MakeLowering<ResizeLowering<Instruction>>(graph, node, params,
                                                   ToByteType(graph.Input(node, 0)->type));
}

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
    const auto append = [&](const LstmProduct& product, int64_t columns) {
      for (const int8_t* gate : product.weights) {
        weights.insert(weights.end(), gate, gate + params.units * columns);
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

bool IsReduction(const ReducePlan& plan) {
  constexpr size_t kLoops = 5;
  return plan.loops.size() <= kLoops;
}

Lowering LowerTable(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph, node));
  return MakeLowering<RowsLowering<TableInstruction>>(graph, node, table);
}

Lowering LowerL2Normalization(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const L2NormalizationParams params,
                         MakeL2NormalizationParams(graph, node));
  L2NormalizationInstruction i;
  i.depth = params.depth;
  i.flags = UnsignedFlag(params.type, kFlagInputUnsigned);
  i.input_zero_point = params.input_zero_point;
  return LowerRows(graph, node, i);
}

Lowering LowerSoftmax(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const SoftmaxParams params, MakeSoftmaxParams(graph, node));
  SoftmaxInstruction i;
  i.depth = params.depth;
  i.flags = UnsignedFlag(params.type, kFlagInputUnsigned);
  i.multiplier = params.multiplier.value;
  i.exponent = InstructionExponent(params.multiplier.exponent);
  i.min_difference = params.min_difference;
  return LowerRows(graph, node, i);
}

Lowering LowerReduceMax(const Graph& graph, const Node& node) {
  return LowerExtreme<ReduceMaxInstruction>(graph, node);
}

Lowering LowerReduceMin(const Graph& graph, const Node& node) {
  return LowerExtreme<ReduceMinInstruction>(graph, node);
}

Lowering LowerReduceSum(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const ByteSumParams params, MakeByteSumParams(graph, node));
  ReduceSumInstruction i;
  i.flags = UnsignedFlag(params.type, kFlagInputUnsigned);
  i.input_zero_point = params.input_zero_point;
  i.multiplier = params.multiplier.value;
  i.exponent = InstructionExponent(params.multiplier.exponent);
  i.output_zero_point = params.output_zero_point;
  i.clamp_min = params.clamp.min;
  i.clamp_max = params.clamp.max;
  return LowerRows(graph, node, i);
}

Lowering LowerResizeBilinear(const Graph& graph, const Node& node) {
  return LowerResize<ResizeBilinearInstruction>(graph, node);
}

Lowering LowerResizeNearestNeighbor(const Graph& graph, const Node& node) {
  return LowerResize<ResizeNearestNeighborInstruction>(graph, node);
}

Lowering LowerLstm(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const LstmParams params, MakeLstmParams(graph, node));
  return MakeLowering<LstmLowering>(graph, node, params);
}

}  // namespace atollrt
