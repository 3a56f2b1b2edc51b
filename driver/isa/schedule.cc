// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/schedule.h"

#include <algorithm>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

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

uint64_t Schedule::LinkCycles(uint64_t bytes) const {
  if (options_.link_bytes_per_second == 0) return 0;
  // Programs move less than 2^33 bytes, clocks have less than 2^31 Hz.
  return DivideRoundingUp(bytes * options_.clock_hz, options_.link_bytes_per_second);
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
      slot.link_start = LinkCycles(bytes_in_);
      bytes_in_ += bytes;
      slot.link_end = LinkCycles(bytes_in_);
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
    slot.link_start = std::max(link_in_free_, slot.end);
    slot.link_end = slot.link_start + LinkCycles(accesses.begin()->bytes);
    link_in_free_ = slot.link_end;
    summary_.link_in += slot.link_end - slot.link_start;
  }
  unit_free = slot.end;
  issued_ = slot.issued;
  const auto* conv = std::get_if<Conv2DInstruction>(&instruction);
  place = {slot.start, slot.end, accesses, conv != nullptr ? conv->output_c : 0};
  ++summary_.instructions;
  summary_.total = std::max({summary_.total, slot.end, link_in_free_});
  return slot;
}

ScheduleSummary SummarizeProgram(std::span<const Instruction> program,
                                 const ScheduleOptions& options) {
  Schedule schedule(options);
  for (const Instruction& instruction : program) schedule.Add(instruction);
  return schedule.summary();
}

}  // namespace atollrt
