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
uint64_t InputPositions(const TransposeConv2DInstruction& i) {
  return uint64_t{i.batch} * i.input_h * i.input_w;
}

struct ExecutionTime {
  uint64_t rows;
  uint64_t columns;

  uint64_t VectorSteps(uint64_t elements) const { return DivideRoundingUp(elements, columns); }
  // To bring `values` of neighbouring lanes together, two at a time.
  static uint64_t FoldSteps(uint64_t values) {
    return static_cast<uint64_t>(std::bit_width(values - 1));
  }

  uint64_t operator()(const EndInstruction&) const { return 0; }
  template <StreamInstruction T>
  uint64_t operator()(const T& i) const {
    return DmaCycles(i.bytes);
  }
  uint64_t operator()(const FillInstruction& i) const { return DmaCycles(i.bytes); }
  uint64_t operator()(const CopyInstruction& i) const {
    uint64_t runs = 1;
    for (const CopyLoop& loop : LoopsOf(i)) runs *= loop.count;
    return runs * DmaCycles(i.bytes);
  }
  uint64_t operator()(const Conv2DInstruction& i) const {
    if (i.groups == 0) return 0;  // faults
    const uint64_t summed = uint64_t{i.kernel_h} * i.kernel_w * SummedChannels(i);
    const uint64_t tiles = i.groups * DivideRoundingUp(summed, rows) *
                           DivideRoundingUp<uint64_t>(i.output_c / i.groups, columns);
    return tiles * std::max(Positions(i), rows) + rows + columns - 2;
  }
  uint64_t operator()(const DepthwiseConv2DInstruction& i) const {
    return Positions(i) * VectorSteps(i.output_c) * i.kernel_h * i.kernel_w;
  }
  uint64_t operator()(const TransposeConv2DInstruction& i) const {
    const uint64_t channel_tiles = DivideRoundingUp<uint64_t>(i.output_c, columns);
    const uint64_t products =
        uint64_t{i.kernel_h} * i.kernel_w * DivideRoundingUp<uint64_t>(i.input_c, rows);
    return channel_tiles * (products * std::max(InputPositions(i), rows) + Positions(i)) + rows +
           columns - 2;
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
  // Lanes are outputs, or inputs of one output.
  template <ReductionInstruction T>
  uint64_t operator()(const T& i) const {
    const uint64_t rows_added = uint64_t{i.kept0} * i.reduced0 * i.kept1 * i.reduced1;
    if (i.reduced2 == 1) return rows_added * VectorSteps(i.kept2);
    const uint64_t outputs = uint64_t{i.kept0} * i.kept1 * i.kept2;
    return rows_added * i.kept2 * VectorSteps(i.reduced2) +
           outputs * FoldSteps(std::min<uint64_t>(i.reduced2, columns));
  }
  uint64_t operator()(const TableInstruction& i) const { return VectorSteps(i.count); }
  uint64_t operator()(const SoftmaxInstruction& i) const {
    return kExpProducts * VectorSteps(kByteValues) +
           i.rows * (3 * VectorSteps(i.depth) + 2 * FoldSteps(columns) + kReciprocalSteps);
  }
  uint64_t operator()(const L2NormalizationInstruction& i) const {
    return i.rows * (2 * VectorSteps(i.depth) + FoldSteps(columns) + kInverseRootSteps);
  }
  template <ResizeInstruction T>
  uint64_t operator()(const T& i) const {
    const uint64_t cells = std::is_same_v<T, ResizeBilinearInstruction> ? 4 : 1;
    return cells * i.batch * i.output_rows * i.output_w * VectorSteps(i.channels);
  }
  uint64_t operator()(std::monostate) const { return 0; }
};

bool Writes(const MemoryAccess& access) {
  return access.kind == MemoryAccess::Kind::kWrite || access.kind == MemoryAccess::Kind::kReadWrite;
}

// Whether one of the two writes what the other touches.
bool Conflict(const MemoryAccesses& a, const MemoryAccesses& b) {
  for (const MemoryAccess& x : a) {
    for (const MemoryAccess& y : b) {
      if ((Writes(x) || Writes(y)) && !AreApart(x, y, kSegmentsApart)) return true;
    }
  }
  return false;
}

}  // namespace

uint64_t ExecutionCycles(const Instruction& instruction, ArraySize array) {
  return std::visit(ExecutionTime{array.rows, array.columns}, instruction);
}

uint64_t MultiplyAccumulates(const Instruction& instruction) {
  return std::visit(
      [](const auto& i) -> uint64_t {
        using T = std::decay_t<decltype(i)>;
        if constexpr (std::is_same_v<T, LstmInstruction>) {
          return uint64_t{i.batch} * i.steps * 4 * i.units * (uint64_t{i.inputs} + i.units);
        } else if constexpr (std::is_same_v<T, TransposeConv2DInstruction>) {
          return InputPositions(i) * WeightBytes(i);
        } else if constexpr (FilterInstruction<T>) {
          return Positions(i) * WeightBytes(i);
        }
        return 0;
      },
      instruction);
}

uint64_t Schedule::LinkCycles(uint64_t bytes) const {
  if (options_.link_bytes_per_second == 0) return 0;
  // Programs move less than 2^33 bytes, clocks have less than 2^31 Hz.
  return DivideRoundingUp(bytes * options_.clock_hz, options_.link_bytes_per_second);
}

// When the last of the first so many bytes is on the device.
uint64_t Schedule::ArrivalCycles(uint64_t bytes) const {
  return LinkCycles(bytes - std::min(bytes, options_.bytes_ahead));
}

// Of an ADD of so many neighbouring bytes.
uint64_t Schedule::AddCycles(uint32_t bytes) const {
  const AddInstruction add{.count0 = 1, .count1 = 1, .count2 = 1, .count3 = bytes};
  return ExecutionCycles(add, options_.array);
}

Schedule::Slot Schedule::Add(const Instruction& instruction, uint64_t execution_cycles) {
  Slot slot;
  slot.unit = UnitOf(instruction);
  InFlight& place = in_flight_[summary_.instructions % kInstructionsInFlight];
  slot.issued = std::max(issued_ + kIssueCycles, place.end);
  uint64_t& unit_free = free_[static_cast<size_t>(slot.unit)];
  slot.start = std::max(slot.issued, unit_free);
  const MemoryAccesses accesses = AccessesOf(instruction);
  const InFlight* const chained_to =
      ChainedAdd(instruction) != nullptr
          ? &in_flight_[(summary_.instructions - 1) % kInstructionsInFlight]
          : nullptr;
  if (chained_to != nullptr) slot.start = std::max(slot.start, chained_to->start);
  for (const InFlight& earlier : in_flight_) {
    if (&earlier == chained_to) continue;
    if (earlier.end > slot.start && Conflict(accesses, earlier.accesses)) slot.start = earlier.end;
  }
  uint64_t busy = execution_cycles;
  uint64_t* total = nullptr;
  switch (slot.unit) {
    case Unit::kSequencer:
      // END is the last to finish.
      slot.start = std::max(slot.start, *std::max_element(free_.begin(), free_.end()));
      break;
    case Unit::kInfeed: {
      const uint64_t bytes = accesses.begin()->bytes;
      slot.link_start = ArrivalCycles(bytes_in_);
      bytes_in_ += bytes;
      slot.link_end = ArrivalCycles(bytes_in_);
      // Bytes are stored as they arrive; the last ones cannot be earlier than they are there.
      busy = std::max(busy, slot.link_end > slot.start ? slot.link_end - slot.start : 0);
      const bool is_parameters = std::holds_alternative<ParametersInstruction>(instruction);
      (is_parameters ? summary_.parameters : summary_.link_out) += slot.link_end - slot.link_start;
      break;
    }
    case Unit::kLinkOut:
    case Unit::kLinkIn:
    case Unit::kOutfeed:
      break;
    case Unit::kDma:
      total = &summary_.dma;
      break;
    case Unit::kArray:
      busy += options_.array.rows;  // the first tile of weights
      total = &summary_.array;
      break;
    case Unit::kVector:
      if (chained_to != nullptr) {
        const uint64_t end = chained_to->end + AddCycles(chained_to->position_bytes);
        busy = std::max(busy, end > slot.start ? end - slot.start : 0);
      }
      total = &summary_.vector;
      break;
  }
  slot.end = slot.start + busy;
  if (total != nullptr) *total += busy;
  if (slot.unit == Unit::kOutfeed) {
    slot.link_start = std::max(summary_.delivered, slot.end);
    slot.link_end = slot.link_start + LinkCycles(accesses.begin()->bytes);
    summary_.delivered = slot.link_end;
    summary_.link_in += slot.link_end - slot.link_start;
  }
  unit_free = slot.end;
  issued_ = slot.issued;
  const auto* conv = std::get_if<Conv2DInstruction>(&instruction);
  place = {slot.start, slot.end, accesses, conv != nullptr ? conv->output_c : 0};
  ++summary_.instructions;
  summary_.computed = std::max(summary_.computed, slot.end);
  summary_.total = std::max(summary_.computed, summary_.delivered);
  return slot;
}

ScheduleSummary SummarizeProgram(std::span<const Instruction> program,
                                 const ScheduleOptions& options) {
  Schedule schedule(options);
  for (const Instruction& instruction : program) schedule.Add(instruction);
  return schedule.summary();
}

}  // namespace atollrt
