// SPDX-License-Identifier: Apache-2.0
#include "driver/timing.h"

#include <algorithm>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint64_t kDmaBytesPerCycle = 64;

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

  uint64_t operator()(const EndInstruction&) const { return 0; }
  uint64_t operator()(const InputInstruction& i) const { return DmaCycles(i.bytes); }
  uint64_t operator()(const OutputInstruction& i) const { return DmaCycles(i.bytes); }
  uint64_t operator()(const ParametersInstruction& i) const { return DmaCycles(i.bytes); }
  uint64_t operator()(const FillInstruction& i) const { return DmaCycles(i.bytes); }
  uint64_t operator()(const CopyInstruction& i) const {
    return uint64_t{i.count0} * i.count1 * i.count2 * DmaCycles(i.bytes);
  }
  uint64_t operator()(const Conv2DInstruction& i) const {
    const uint64_t summed = uint64_t{i.kernel_h} * i.kernel_w * (i.input_c / i.groups);
    const uint64_t tiles = i.groups * DivideRoundingUp(summed, rows) *
                           DivideRoundingUp<uint64_t>(i.output_c / i.groups, columns);
    return tiles * std::max(Positions(i), rows) + rows + columns - 2;
  }
  uint64_t operator()(const DepthwiseConv2DInstruction& i) const {
    return Positions(i) * VectorSteps(i.output_c) * i.kernel_h * i.kernel_w;
  }
  uint64_t operator()(const Pool2DInstruction& i) const {
    return Positions(i) * VectorSteps(i.channels) * i.kernel_h * i.kernel_w;
  }
  uint64_t operator()(const AddInstruction& i) const { return 2 * VectorSteps(i.count); }
  uint64_t operator()(const MeanInstruction& i) const {
    return uint64_t{i.batch} * i.positions * VectorSteps(i.channels);
  }
  uint64_t operator()(const TableInstruction& i) const { return VectorSteps(i.count); }
  uint64_t operator()(std::monostate) const { return 0; }
};

}  // namespace

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
  return 0;
}

}  // namespace atollrt
