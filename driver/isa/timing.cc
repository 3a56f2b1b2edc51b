// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/timing.h"

#include <algorithm>
#include <bit>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint64_t kDmaBytesPerCycle = 64;
// SOFTMAX and L2_NORMALIZATION.
constexpr uint64_t kByteValues = 256;
constexpr uint64_t kExpProducts = 13;
constexpr uint64_t kReciprocalSteps = 8;
constexpr uint64_t kInverseRootSteps = 22;
// Of the vector unit for what follows the gates of a step: in each lane, and until the last result
// of a function is there, twice.
constexpr uint64_t kLstmCyclesPerUnit = 8;
constexpr uint64_t kLstmFunctionDelay = 18;

uint64_t DmaCycles(uint64_t bytes) { return DivideRoundingUp(bytes, kDmaBytesPerCycle); }

// M of docs/isa.md §5: output positions.
template <typename T>
uint64_t Positions(const T& i) {
  return uint64_t{i.batch} * i.output_h * i.output_w;
}

struct ExecutionTime {
  uint64_t rows;
  uint64_t columns;

  uint64_t VectorSteps(uint64_t elements) const { return DivideRoundingUp(elements, columns); }
  // To bring `values` of neighbouring lanes together, two at a time.
  static uint64_t FoldSteps(uint64_t values) {
    return static_cast<uint64_t>(std::bit_width(values - 1));
  }

  // REDUCE_SUM, REDUCE_MAX, REDUCE_MIN: lanes are outputs, or inputs of one output.
  template <typename T>
  uint64_t Reduction(const T& i) const {
    const uint64_t rows_added = uint64_t{i.kept0} * i.reduced0 * i.kept1 * i.reduced1;
    if (i.reduced2 == 1) return rows_added * VectorSteps(i.kept2);
    const uint64_t outputs = uint64_t{i.kept0} * i.kept1 * i.kept2;
    return rows_added * i.kept2 * VectorSteps(i.reduced2) +
           outputs * FoldSteps(std::min<uint64_t>(i.reduced2, columns));
  }
  template <typename T>
  uint64_t Resizing(const T& i) const {
    return uint64_t{i.batch} * i.output_rows * i.output_w * VectorSteps(i.channels);
  }

  uint64_t operator()(const EndInstruction&) const { return 0; }
  uint64_t operator()(const InputInstruction& i) const { return DmaCycles(i.bytes); }
  uint64_t operator()(const OutputInstruction& i) const { return DmaCycles(i.bytes); }
  uint64_t operator()(const ParametersInstruction& i) const { return DmaCycles(i.bytes); }
  uint64_t operator()(const FillInstruction& i) const { return DmaCycles(i.bytes); }
  uint64_t operator()(const CopyInstruction& i) const {
    uint64_t runs = 1;
    for (const CopyLoop& loop : LoopsOf(i)) runs *= loop.count;
    return runs * DmaCycles(i.bytes);
  }
  uint64_t operator()(const Conv2DInstruction& i) const {
    if (i.groups == 0) return 0;  // faults
    const uint64_t summed = uint64_t{i.kernel_h} * i.kernel_w * (i.input_c / i.groups);
    const uint64_t tiles = i.groups * DivideRoundingUp(summed, rows) *
                           DivideRoundingUp<uint64_t>(i.output_c / i.groups, columns);
    return tiles * std::max(Positions(i), rows) + rows + columns - 2;
  }
  uint64_t operator()(const DepthwiseConv2DInstruction& i) const {
    return Positions(i) * VectorSteps(i.output_c) * i.kernel_h * i.kernel_w;
  }
  uint64_t operator()(const TransposeConv2DInstruction& i) const {
    const uint64_t inputs = uint64_t{i.batch} * i.input_h * i.input_w;
    const uint64_t channel_tiles = DivideRoundingUp<uint64_t>(i.output_c, columns);
    const uint64_t products =
        uint64_t{i.kernel_h} * i.kernel_w * DivideRoundingUp<uint64_t>(i.input_c, rows);
    return channel_tiles * (products * std::max(inputs, rows) + Positions(i)) + rows + columns - 2;
  }
  uint64_t operator()(const LstmInstruction& i) const {
    const uint64_t tiles =
        (DivideRoundingUp<uint64_t>(i.inputs, rows) + DivideRoundingUp<uint64_t>(i.units, rows)) *
        DivideRoundingUp<uint64_t>(4 * uint64_t{i.units}, columns);
    const uint64_t products = tiles * std::max<uint64_t>(i.batch, rows) + rows + columns - 2;
    return i.steps * (products + kLstmCyclesPerUnit * i.batch * VectorSteps(i.units) +
                      2 * kLstmFunctionDelay);
  }
  uint64_t operator()(const Pool2DInstruction& i) const {
    return Positions(i) * VectorSteps(i.channels) * i.kernel_h * i.kernel_w;
  }
  template <PairInstruction T>
  uint64_t operator()(const T& i) const {
    return uint64_t{i.count0} * i.count1 * i.count2 * 2 * VectorSteps(i.count3);
  }
  uint64_t operator()(const ReduceSumInstruction& i) const { return Reduction(i); }
  uint64_t operator()(const TableInstruction& i) const { return VectorSteps(i.count); }
  uint64_t operator()(const ReduceMaxInstruction& i) const { return Reduction(i); }
  uint64_t operator()(const ReduceMinInstruction& i) const { return Reduction(i); }
  uint64_t operator()(const SoftmaxInstruction& i) const {
    return kExpProducts * VectorSteps(kByteValues) +
           i.rows * (3 * VectorSteps(i.depth) + 2 * FoldSteps(columns) + kReciprocalSteps);
  }
  uint64_t operator()(const L2NormalizationInstruction& i) const {
    return i.rows * (2 * VectorSteps(i.depth) + FoldSteps(columns) + kInverseRootSteps);
  }
  uint64_t operator()(const ResizeBilinearInstruction& i) const { return 4 * Resizing(i); }
  uint64_t operator()(const ResizeNearestNeighborInstruction& i) const { return Resizing(i); }
  uint64_t operator()(std::monostate) const { return 0; }
};

}  // namespace

uint64_t ScaleSimCycles(uint64_t positions, uint64_t products, uint64_t channels, ArraySize array) {
  const uint64_t rows = array.rows;
  const uint64_t columns = array.columns;
  const uint64_t folds = DivideRoundingUp(products, rows) * DivideRoundingUp(channels, columns);
  return folds * (positions + 2 * rows + columns - 2) - 1;
}

uint64_t ExecutionCycles(const Instruction& instruction, ArraySize array) {
  return std::visit(ExecutionTime{array.rows, array.columns}, instruction);
}

uint64_t MultiplyAccumulates(const Instruction& instruction) {
  if (const auto* conv = std::get_if<Conv2DInstruction>(&instruction)) {
    if (conv->groups == 0) return 0;
    return Positions(*conv) * conv->output_c * conv->kernel_h * conv->kernel_w *
           (conv->input_c / conv->groups);
  }
  if (const auto* depthwise = std::get_if<DepthwiseConv2DInstruction>(&instruction)) {
    return Positions(*depthwise) * depthwise->output_c * depthwise->kernel_h * depthwise->kernel_w;
  }
  if (const auto* transpose = std::get_if<TransposeConv2DInstruction>(&instruction)) {
    return uint64_t{transpose->batch} * transpose->input_h * transpose->input_w *
           transpose->input_c * transpose->output_c * transpose->kernel_h * transpose->kernel_w;
  }
  if (const auto* lstm = std::get_if<LstmInstruction>(&instruction)) {
    return uint64_t{lstm->batch} * lstm->steps * 4 * lstm->units *
           (uint64_t{lstm->inputs} + lstm->units);
  }
  return 0;
}

}  // namespace atollrt
