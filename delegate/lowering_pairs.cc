// SPDX-License-Identifier: Apache-2.0
//
// Operators of two tensors, element by element, either of which may repeat or be a constant.
#include "delegate/lowering.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/ops/elementwise_params.h"

namespace atollrt {
namespace {

constexpr size_t kOperands = 2;

// An instruction with addresses and loops; `address` of input 1, input 2 and the output.
template <PairInstruction T>
T MakeInstruction(const Broadcast& broadcast, const uint32_t (&address)[kOperands + 1]) {
  T i;
  i.input1_address = address[0];
  i.input2_address = address[1];
  i.output_address = address[2];
  // Counts of 1 in front.
  BroadcastLoop outer[kPairLoops - 1];
  std::copy_backward(broadcast.outer.begin(), broadcast.outer.end(), std::end(outer));
  const auto set = [](const BroadcastLoop& loop, uint32_t& count, uint32_t& stride1,
                      uint32_t& stride2) {
    count = Word(loop.count);
    stride1 = Word(loop.stride1);
    stride2 = Word(loop.stride2);
  };
  set(outer[0], i.count0, i.input1_stride0, i.input2_stride0);
  set(outer[1], i.count1, i.input1_stride1, i.input2_stride1);
  set(outer[2], i.count2, i.input1_stride2, i.input2_stride2);
  set(broadcast.inner, i.count3, i.input1_stride3, i.input2_stride3);
  return i;
}

class PairLowering final : public NodeLowering {
 public:
  PairLowering(const Graph& graph, const Node& node, const PairParams& params)
      : NodeLowering(graph, node), params_(params) {
    for (size_t k = 0; k < kOperands; ++k) {
      if (input(k).is_constant()) AddConstantInput(k, input(k).data);
    }
  }

  bool divides_into_rows() const override { return IsImage(output()); }

  RowRange InputRows(size_t position, RowRange rows) const override {
    return Advances(position) && IsImage(input(position)) ? rows : AllRows(input(position));
  }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<Instruction>* program) const override {
    const Broadcast broadcast = MakeBroadcast(BandShape(0, rows), BandShape(1, rows));
    const uint32_t address[] = {OperandAddress(place, 0, rows), OperandAddress(place, 1, rows),
                                OutputAddress(place, 0, rows.begin)};
    switch (params_.op) {
      case PairOp::kAdd:
      case PairOp::kSubtract:
      case PairOp::kSquaredDifference:
        program->push_back(MakeAdd(MakeInstruction<AddInstruction>(broadcast, address)));
        break;
      case PairOp::kMultiply:
        program->push_back(MakeMultiply(MakeInstruction<MultiplyInstruction>(broadcast, address)));
        break;
      case PairOp::kPrelu:
        program->push_back(MakePrelu(MakeInstruction<PreluInstruction>(broadcast, address)));
        break;
      case PairOp::kMaximum:
        program->push_back(WithFlags(MakeInstruction<MaximumInstruction>(broadcast, address)));
        break;
      case PairOp::kMinimum:
        program->push_back(WithFlags(MakeInstruction<MinimumInstruction>(broadcast, address)));
        break;
    }
  }

 private:
  // ---- Rows -------------------------------------------------------------------------------------

  // An operand's size along the axis of the output's rows: the third from the right.
  int32_t Height(size_t position) const {
    const Shape& shape = input(position).shape;
    return shape.size() < 3 ? 1 : shape[shape.size() - 3];
  }
  // Whether an operand moves on with the rows; otherwise it repeats.
  bool Advances(size_t position) const { return IsImage(output()) && Height(position) > 1; }

  // The part of an operand that belongs to a band.
  Shape BandShape(size_t position, RowRange rows) const {
    Shape shape = input(position).shape;
    if (Advances(position)) shape[shape.size() - 3] = rows.count();
    return shape;
  }
  uint32_t OperandAddress(const OperandPlaces& place, size_t position, RowRange rows) const {
    if (!Advances(position)) return InputAddress(place, position);
    if (IsImage(input(position))) return InputAddress(place, position, rows.begin);
    // [h, w, c], which is on chip as a whole.
    const int64_t row_bytes = input(position).byte_size() / Height(position);
    return InputAddress(place, position) + Word(rows.begin * row_bytes);
  }

  // ---- The rest of the operands -----------------------------------------------------------------

  template <typename T>
  T WithFlags(T i) const {
    i.flags = UnsignedFlag(params_.type, kFlagInputUnsigned);
    return i;
  }
  template <typename T>
  T WithFormats(T i) const {
    i.input1_zero_point = params_.input1_zero_point;
    i.input2_zero_point = params_.input2_zero_point;
    i.output_zero_point = params_.output_zero_point;
    i.clamp_min = params_.clamp.min;
    i.clamp_max = params_.clamp.max;
    return WithFlags(i);
  }

  AddInstruction MakeAdd(const AddInstruction& loops) const {
    AddInstruction i = WithFormats(loops);
    if (params_.op != PairOp::kAdd) i.flags |= kFlagSubtract;
    if (params_.op == PairOp::kSquaredDifference) i.flags |= kFlagSquare;
    i.left_shift = Word(params_.left_shift);
    i.input1_multiplier = params_.input1.value;
    i.input1_exponent = InstructionExponent(params_.input1.exponent);
    i.input2_multiplier = params_.input2.value;
    i.input2_exponent = InstructionExponent(params_.input2.exponent);
    i.output_multiplier = params_.output.value;
    i.output_exponent = InstructionExponent(params_.output.exponent);
    return i;
  }
  MultiplyInstruction MakeMultiply(const MultiplyInstruction& loops) const {
    MultiplyInstruction i = WithFormats(loops);
    i.output_multiplier = params_.output.value;
    i.output_exponent = InstructionExponent(params_.output.exponent);
    return i;
  }
  PreluInstruction MakePrelu(const PreluInstruction& loops) const {
    PreluInstruction i = WithFormats(loops);
    i.positive_multiplier = params_.input1.value;
    i.positive_exponent = InstructionExponent(params_.input1.exponent);
    i.negative_multiplier = params_.output.value;
    i.negative_exponent = InstructionExponent(params_.output.exponent);
    return i;
  }

  const PairParams params_;
};

}  // namespace

Lowering LowerPair(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const PairParams params, MakePairParams(graph, node));
  return std::unique_ptr<const NodeLowering>(std::make_unique<PairLowering>(graph, node, params));
}

bool FitsPairLoops(const Broadcast& broadcast) { return broadcast.outer.size() < kPairLoops; }

}  // namespace atollrt
