// SPDX-License-Identifier: Apache-2.0
//
// What the vector unit computes from many elements each: reductions, and operators that relate
// every element to its row.
#include "delegate/lowering.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// REDUCE_SUM, REDUCE_MAX and REDUCE_MIN. `instruction` has everything but addresses and axes.
template <typename Instruction>
class ReductionLowering final : public NodeLowering {
 public:
  ReductionLowering(const Graph& graph, const Node& node, const Instruction& instruction)
      : NodeLowering(graph, node),
        instruction_(instruction),
        reduced_axes_(ReducedAxes(graph, node)) {}

  // As long as the rows are not what is reduced.
  bool divides_into_rows() const override {
    return IsImage(input(0)) && IsImage(output()) && RowCount(input(0)) == RowCount(output());
  }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<atollrt::Instruction>* program) const override {
    Shape shape = input(0).shape;
    if (divides_into_rows()) shape[1] = rows.count();
    Instruction i = instruction_;
    i.input_address = InputAddress(place, 0, rows.begin);
    i.output_address = OutputAddress(place, 0, rows.begin);
    SetAxes(MakeReducePlan(shape, reduced_axes_), &i);
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
      *(is_reduced ? reduced : kept)[place] = static_cast<uint32_t>(plan.loops[loop].count);
      if (!is_reduced) --place;
    }
  }

  const Instruction instruction_;
  const std::vector<bool> reduced_axes_;
};

// SOFTMAX and L2_NORMALIZATION. `instruction` has everything but addresses and rows.
template <typename Instruction>
class NormalizationLowering final : public NodeLowering {
 public:
  NormalizationLowering(const Graph& graph, const Node& node, const Instruction& instruction)
      : NodeLowering(graph, node), instruction_(instruction) {}

  bool divides_into_rows() const override { return IsImage(output()); }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<atollrt::Instruction>* program) const override {
    Instruction i = instruction_;
    i.input_address = InputAddress(place, 0, rows.begin);
    i.output_address = OutputAddress(place, 0, rows.begin);
    i.rows = CountOf(rows) / i.depth;
    program->push_back(i);
  }

 private:
  const Instruction instruction_;
};

template <template <typename> class Kind, typename Instruction>
Lowering Lower(const Graph& graph, const Node& node, const Instruction& instruction) {
  return std::unique_ptr<const NodeLowering>(
      std::make_unique<Kind<Instruction>>(graph, node, instruction));
}

template <typename Instruction>
Lowering LowerExtreme(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckExtremes(graph, node));
  Instruction i;
  i.flags = UnsignedFlag(ToByteType(graph.Input(node, 0)->type), kFlagInputUnsigned);
  return Lower<ReductionLowering>(graph, node, i);
}

}  // namespace

bool IsReduction(const ReducePlan& plan) {
  constexpr size_t kLoops = 5;
  return plan.loops.size() <= kLoops;
}

Lowering LowerL2Normalization(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const L2NormalizationParams params,
                         MakeL2NormalizationParams(graph, node));
  L2NormalizationInstruction i;
  i.depth = static_cast<uint32_t>(params.depth);
  i.flags = UnsignedFlag(params.type, kFlagInputUnsigned);
  i.input_zero_point = params.input_zero_point;
  return Lower<NormalizationLowering>(graph, node, i);
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
  return Lower<ReductionLowering>(graph, node, i);
}

Lowering LowerSoftmax(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const SoftmaxParams params, MakeSoftmaxParams(graph, node));
  SoftmaxInstruction i;
  i.depth = static_cast<uint32_t>(params.depth);
  i.flags = UnsignedFlag(params.type, kFlagInputUnsigned);
  i.multiplier = params.multiplier.value;
  i.exponent = InstructionExponent(params.multiplier.exponent);
  i.min_difference = params.min_difference;
  return Lower<NormalizationLowering>(graph, node, i);
}

}  // namespace atollrt
