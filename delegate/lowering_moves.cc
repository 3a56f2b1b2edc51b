// SPDX-License-Identifier: Apache-2.0
//
// What moves bytes without looking at them, or only looks them up.
#include <algorithm>
#include <limits>

#include "delegate/lowering.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

using Loop = StridedCopy::Loop;

// A copy as COPY instructions: one for every step of the loops that they have no room for or, as
// they go backwards, cannot express.
class CopySteps {
 public:
  explicit CopySteps(const StridedCopy& copy) : copy_(copy) {
    // The longest loops that go forwards stay, in their order.
    std::vector<int64_t> counts;
    for (const Loop& loop : copy.loops) {
      if (loop.in_stride >= 0) counts.push_back(loop.count);
    }
    std::sort(counts.rbegin(), counts.rend());
    counts.resize(std::min(counts.size(), kCopyLoops));
    for (const Loop& loop : copy.loops) {
      const auto room = std::find(counts.begin(), counts.end(), loop.count);
      if (loop.in_stride >= 0 && room != counts.end()) {
        counts.erase(room);
        loops_.push_back(loop);
      } else {
        unrolled_.push_back(loop);
      }
    }
  }

  // How many instructions; no more than there are bytes to copy.
  int64_t count() const {
    int64_t steps = 1;
    for (const Loop& loop : unrolled_) steps *= loop.count;
    return steps;
  }

  // `input` and `output` are the addresses of byte 0 of the two tensors.
  void Emit(uint32_t input, uint32_t output, std::vector<Instruction>* program) const {
    EmitStep(0, input + Word(copy_.in_offset), output + Word(copy_.out_offset), program);
  }

 private:
  void EmitStep(size_t depth, uint32_t input, uint32_t output,
                std::vector<Instruction>* program) const {
    if (depth < unrolled_.size()) {
      const Loop& loop = unrolled_[depth];
      for (int64_t i = 0; i < loop.count; ++i) {
        EmitStep(depth + 1, input + Word(i * loop.in_stride), output + Word(i * loop.out_stride),
                 program);
      }
      return;
    }
    program->push_back(MakeCopy(input, output, copy_.run_bytes, loops_));
  }

  const StridedCopy& copy_;
  std::vector<Loop> loops_;     // of each instruction
  std::vector<Loop> unrolled_;  // around them
};

// The bytes of the input between the first and the last that a copy reads.
struct ByteRange {
  int64_t begin = 0, end = 0;
};
ByteRange BytesRead(const StridedCopy& copy) {
  ByteRange range{copy.in_offset, copy.in_offset + copy.run_bytes};
  for (const Loop& loop : copy.loops) {
    const int64_t distance = (loop.count - 1) * loop.in_stride;
    (distance < 0 ? range.begin : range.end) += distance;
  }
  return range;
}

class NoLowering final : public NodeLowering {
 public:
  using NodeLowering::NodeLowering;
  void Emit(const OperandPlaces&, RowRange, std::vector<Instruction>*) const override {}
};

// A plan as it is, or those parts of its copies that write the rows of a band.
class MoveLowering final : public NodeLowering {
 public:
  MoveLowering(const Graph& graph, const Node& node, MovePlan plan)
      : NodeLowering(graph, node), plan_(std::move(plan)) {}

  // Brings an input that is read from its first byte to its last, in this order, to another
  // quantization on its way.
  void Rescale(size_t position, const LookupTable& table) {
    tables_.push_back({position, AddParameters(table)});
  }
  using NodeLowering::AddConstantInput;

  int64_t scratch_bytes(int32_t rows) const override {
    int64_t bytes = static_cast<int64_t>(plan_.scratch_bytes);
    for (const MovePlan::Copy& step : plan_.copies) {
      if (FindTable(step) == nullptr || step.copy.loops.empty()) continue;
      const Tensor& part = input(step.from.position);
      bytes = std::max(bytes, divides_into_rows() ? rows * RowBytes(part) : part.byte_size());
    }
    return bytes;
  }

  bool divides_into_rows() const override {
    if (plan_.scratch_bytes > 0) return false;
    for (size_t i = 0; i < node_.outputs.size(); ++i) {
      if (!IsImage(output(i)) || RowCount(output(i)) != RowCount(output())) return false;
    }
    return true;
  }

  RowRange InputRows(size_t position, RowRange rows) const override {
    const int64_t row_bytes = RowBytes(input(position));
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    for (const MovePlan::Copy& step : plan_.copies) {
      if (step.from.position != position) continue;
      for (const StridedCopy& part : PartsOf(step, rows)) {
        const ByteRange read = BytesRead(part);
        begin = std::min(begin, read.begin / row_bytes);
        end = std::max(end, (read.end - 1) / row_bytes + 1);
      }
    }
    if (begin >= end) return {};
    return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
  }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<Instruction>* program) const override {
    const auto writable = [&](MoveOperand operand) {
      return operand.kind == MoveOperand::Kind::kScratch ? place.scratch
                                                         : OutputAddress(place, operand.position);
    };
    if (plan_.fill.count > 0) {
      const bool is_output = plan_.fill.target.kind == MoveOperand::Kind::kOutput;
      program->push_back(FillInstruction{
          .output_address = is_output ? OutputAddress(place, 0, rows.begin) : place.scratch,
          .bytes = is_output ? CountOf(rows) : Word(plan_.fill.count),
          .value = plan_.fill.element[0]});
    }
    for (const MovePlan::Copy& step : plan_.copies) {
      const uint32_t to = writable(step.to);
      const uint32_t from = step.from.kind == MoveOperand::Kind::kInput
                                ? InputAddress(place, step.from.position)
                                : writable(step.from);
      const Table* table = FindTable(step);
      for (const StridedCopy& part : PartsOf(step, rows)) {
        if (table == nullptr) {
          CopySteps(part).Emit(from, to, program);
        } else {
          EmitRescaled(part, place.parameters + table->offset, from, place.scratch, to, program);
        }
      }
    }
  }

 private:
  struct Table {
    size_t position;  // of the input
    uint32_t offset;  // in parameters()
  };
  const Table* FindTable(const MovePlan::Copy& step) const {
    for (const Table& table : tables_) {
      if (step.from.kind == MoveOperand::Kind::kInput && step.from.position == table.position) {
        return &table;
      }
    }
    return nullptr;
  }

  std::vector<StridedCopy> PartsOf(const MovePlan::Copy& step, RowRange rows) const {
    if (!divides_into_rows()) return {step.copy};
    const int64_t row_bytes = RowBytes(output(step.to.position));
    std::vector<StridedCopy> parts;
    ClipStridedCopy(step.copy, rows.begin * row_bytes, rows.end * row_bytes, &parts);
    return parts;
  }

  // Straight to the output where a part stays in one piece, else by way of scratch memory.
  static void EmitRescaled(const StridedCopy& part, uint32_t table, uint32_t from, uint32_t scratch,
                           uint32_t to, std::vector<Instruction>* program) {
    const ByteRange read = BytesRead(part);
    const bool is_whole = part.loops.empty();
    program->push_back(
        TableInstruction{.input_address = from + Word(read.begin),
                         .output_address = is_whole ? to + Word(part.out_offset) : scratch,
                         .count = Word(read.end - read.begin),
                         .table_address = table});
    if (!is_whole) CopySteps(part).Emit(scratch - Word(read.begin), to, program);
  }

  const MovePlan plan_;
  std::vector<Table> tables_;
};

}  // namespace

Lowering LowerNothing(const Graph& graph, const Node& node) {
  return MakeLowering<NoLowering>(graph, node);
}

Lowering LowerMove(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(MovePlan plan, MakeMovePlan(graph, node));
  std::vector<size_t> constants;
  for (const MovePlan::Copy& step : plan.copies) {
    const size_t position = step.from.position;
    if (step.from.kind == MoveOperand::Kind::kInput && graph.Input(node, position)->is_constant()) {
      constants.push_back(position);
    }
  }
  auto lowering = std::make_unique<MoveLowering>(graph, node, std::move(plan));
  for (const size_t position : constants) {
    lowering->AddConstantInput(position, graph.Input(node, position)->data);
  }
  return std::unique_ptr<const NodeLowering>(std::move(lowering));
}

// One copy per part, into its place along the axis.
Lowering LowerConcatenation(const Graph& graph, const Node& node) {
  const Tensor& output = graph.Output(node);
  const int32_t axis = NormalizeAxis(std::get<AxisOptions>(node.options).axis, output.shape.size());
  int64_t outer = 1;
  for (int32_t i = 0; i < axis; ++i) outer *= output.shape[i];
  const int64_t output_run = output.byte_size() / outer;
  MovePlan plan;
  std::vector<ConcatenationPart> parts;
  int64_t offset = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    ATOLL_ASSIGN_OR_RETURN(parts.emplace_back(), MakeConcatenationPart(graph, node, i));
    const int64_t run = graph.Input(node, i)->byte_size() / outer;
    const StridedCopy bytes{.out_offset = offset, .loops = {{outer, run, output_run}, {run, 1, 1}}};
    plan.copies.push_back({.from = {MoveOperand::Kind::kInput, i},
                           .to = {MoveOperand::Kind::kOutput, 0},
                           .copy = MakeStridedCopy(bytes, 1)});
    offset += run;
  }
  auto lowering = std::make_unique<MoveLowering>(graph, node, std::move(plan));
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor& part = *graph.Input(node, i);
    if (!part.is_constant()) {
      if (parts[i].rescale) lowering->Rescale(i, parts[i].table);
      continue;
    }
    std::vector<uint8_t> bytes(part.data.begin(), part.data.end());
    if (parts[i].rescale) {
      ApplyTable(parts[i].table, bytes.data(), bytes.data(), part.byte_size());
    }
    lowering->AddConstantInput(i, bytes);
  }
  return std::unique_ptr<const NodeLowering>(std::move(lowering));
}

bool IsCopyProgram(const MovePlan& plan) {
  if (plan.fill.count > 0 && plan.fill.element.size() != 1) return false;
  return std::all_of(plan.copies.begin(), plan.copies.end(), [](const MovePlan::Copy& step) {
    return step.copy.run_bytes > 0 && CopySteps(step.copy).count() <= kCopiesMax;
  });
}

}  // namespace atollrt
