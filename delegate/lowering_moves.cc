// SPDX-License-Identifier: Apache-2.0
//
// What moves bytes without looking at them.
#include <algorithm>
#include <iterator>

#include "delegate/lowering.h"
#include "runtime/graph/shape_inference.h"

namespace atollrt {
namespace {

constexpr size_t kCopyLoops = 3;  // of a COPY instruction

uint32_t Word(int64_t value) { return static_cast<uint32_t>(value); }

class NoLowering final : public NodeLowering {
 public:
  using NodeLowering::NodeLowering;
  void Emit(const OperandPlaces&, RowRange, std::vector<Instruction>*) const override {}
};

class MoveLowering final : public NodeLowering {
 public:
  MoveLowering(const Graph& graph, const Node& node, MovePlan plan)
      : NodeLowering(graph, node), plan_(std::move(plan)) {}

  void Emit(const OperandPlaces& place, RowRange,
            std::vector<Instruction>* program) const override {
    if (plan_.fill.count > 0) {
      program->push_back(FillInstruction{.output_address = OutputAddress(place, 0),
                                         .bytes = Word(plan_.fill.count),
                                         .value = plan_.fill.element[0]});
    }
    for (const auto& [from, to, copy] : plan_.copies) {
      // As three loops, with counts of 1 in front.
      StridedCopy::Loop loops[kCopyLoops];
      std::copy_backward(copy.loops.begin(), copy.loops.end(), std::end(loops));
      program->push_back(CopyInstruction{
          .input_address = InputAddress(place, from.position) + Word(copy.in_offset),
          .output_address = OutputAddress(place, to.position) + Word(copy.out_offset),
          .bytes = Word(copy.run_bytes),
          .count0 = Word(loops[0].count),
          .count1 = Word(loops[1].count),
          .count2 = Word(loops[2].count),
          .input_stride0 = Word(loops[0].in_stride),
          .input_stride1 = Word(loops[1].in_stride),
          .input_stride2 = Word(loops[2].in_stride),
          .output_stride0 = Word(loops[0].out_stride),
          .output_stride1 = Word(loops[1].out_stride),
          .output_stride2 = Word(loops[2].out_stride)});
    }
  }

 private:
  const MovePlan plan_;
};

class ConcatenationLowering final : public NodeLowering {
 public:
  ConcatenationLowering(const Graph& graph, const Node& node)
      : NodeLowering(graph, node),
        axis_(NormalizeAxis(std::get<AxisOptions>(node.options).axis, output().shape.size())) {}

  bool divides_into_rows() const override { return IsImage(output()) && axis_ > 1; }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<Instruction>* program) const override {
    // Of the axes in front of `axis_`, as far as they are in the band.
    int64_t outer = divides_into_rows() ? rows.count() : 1;
    for (int32_t i = divides_into_rows() ? 2 : 0; i < axis_; ++i) outer *= output().shape[i];
    const int64_t output_run = CountOf(rows) / outer;
    uint32_t offset = 0;
    for (size_t position = 0; position < node_.inputs.size(); ++position) {
      const Tensor& part = input(position);
      const int64_t run =
          (divides_into_rows() ? rows.count() * RowBytes(part) : part.byte_size()) / outer;
      program->push_back(
          CopyInstruction{.input_address = InputAddress(place, position, rows.begin),
                          .output_address = OutputAddress(place, 0, rows.begin) + offset,
                          .bytes = Word(run),
                          .count0 = 1,
                          .count1 = 1,
                          .count2 = Word(outer),
                          .input_stride2 = Word(run),
                          .output_stride2 = Word(output_run)});
      offset += Word(run);
    }
  }

 private:
  const int32_t axis_;
};

}  // namespace

Lowering LowerNothing(const Graph& graph, const Node& node) {
  return std::unique_ptr<const NodeLowering>(std::make_unique<NoLowering>(graph, node));
}

Lowering LowerMove(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(MovePlan plan, MakeMovePlan(graph, node));
  return std::unique_ptr<const NodeLowering>(
      std::make_unique<MoveLowering>(graph, node, std::move(plan)));
}

Lowering LowerConcatenation(const Graph& graph, const Node& node) {
  return std::unique_ptr<const NodeLowering>(std::make_unique<ConcatenationLowering>(graph, node));
}

bool IsCopyProgram(const MovePlan& plan) {
  if (plan.fill.count > 0 && plan.fill.element.size() != 1) return false;
  return std::all_of(plan.copies.begin(), plan.copies.end(), [](const MovePlan::Copy& step) {
    return step.from.kind == MoveOperand::Kind::kInput &&
           step.to.kind == MoveOperand::Kind::kOutput && step.copy.run_bytes > 0 &&
           step.copy.loops.size() <= kCopyLoops &&
           std::all_of(step.copy.loops.begin(), step.copy.loops.end(),
                       [](const StridedCopy::Loop& loop) { return loop.in_stride >= 0; });
  });
}

}  // namespace atollrt
