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
    const auto emit = [&]<typename T>(T) {
      program->push_back(WithConstants(MakeInstruction<T>(broadcast, address)));
    };
    switch (params_.op) {
      case PairOp::kAdd:
      case PairOp::kSubtract:
      case PairOp::kSquaredDifference:
        return emit(AddInstruction());
      case PairOp::kMultiply:
        return emit(MultiplyInstruction());
      case PairOp::kPrelu:
        return emit(PreluInstruction());
      case PairOp::kMaximum:
        return emit(MaximumInstruction());
      case PairOp::kMinimum:
        return emit(MinimumInstruction());
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

  template <PairInstruction T>
  T WithConstants(T i) const {
    constexpr bool kIsAdd = std::is_same_v<T, AddInstruction>;
    i.flags = UnsignedFlag(params_.type, kFlagInputUnsigned);
    if constexpr (requires { i.clamp_min; }) {
      i.input1_zero_point = params_.input1_zero_point;
      i.input2_zero_point = params_.input2_zero_point;
      i.output_zero_point = params_.output_zero_point;
      i.clamp_min = params_.clamp.min;
      i.clamp_max = params_.clamp.max;
    }
    if constexpr (kIsAdd) {
      if (params_.op != PairOp::kAdd) i.flags |= kFlagSubtract;
      if (params_.op == PairOp::kSquaredDifference) i.flags |= kFlagSquare;
      i.left_shift = Word(params_.left_shift);
      Set(params_.input1, i.input1_multiplier, i.input1_exponent);
      Set(params_.input2, i.input2_multiplier, i.input2_exponent);
    }
    if constexpr (requires { i.output_multiplier; }) {
      Set(params_.output, i.output_multiplier, i.output_exponent);
    } else if constexpr (requires { i.positive_multiplier; }) {
      Set(params_.input1, i.positive_multiplier, i.positive_exponent);
      Set(params_.output, i.negative_multiplier, i.negative_exponent);
    }
    return i;
  }
  static void Set(const Multiplier& from, int32_t& multiplier, int32_t& exponent) {
    multiplier = from.value;
    exponent = InstructionExponent(from.exponent);
  }

  const PairParams params_;
};

}  // namespace

Lowering LowerPair(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const PairParams params, MakePairParams(graph, node));
  return MakeLowering<PairLowering>(graph, node, params);
}

bool FitsPairLoops(const Broadcast& broadcast) { return broadcast.outer.size() < kPairLoops; }

}  // namespace atollrt
