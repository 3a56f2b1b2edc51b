// SPDX-License-Identifier: Apache-2.0
#include "driver/schedule.h"

#include <algorithm>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

bool Overlap(const MemoryAccess& a, const MemoryAccess& b) {
  if (((a.address ^ b.address) & kParameterSegment) != 0) return false;
  const uint64_t a_begin = a.address & ~kParameterSegment;
  const uint64_t b_begin = b.address & ~kParameterSegment;
  return a_begin < b_begin + b.bytes && b_begin < a_begin + a.bytes;
}

bool Writes(const MemoryAccess& access) {
  return access.kind == MemoryAccess::Kind::kWrite || access.kind == MemoryAccess::Kind::kReadWrite;
}

// Whether one of the two writes what the other touches.
bool Conflict(const MemoryAccesses& a, const MemoryAccesses& b) {
  for (const MemoryAccess& x : a) {
    for (const MemoryAccess& y : b) {
      if ((Writes(x) || Writes(y)) && Overlap(x, y)) return true;
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

Schedule::Slot Schedule::Add(const Instruction& instruction, uint64_t execution_cycles) {
  Slot slot;
  slot.unit = UnitOf(instruction);
  InFlight& place = in_flight_[summary_.instructions % kInstructionsInFlight];
  slot.issued = std::max(issued_ + kIssueCycles, place.end);
  uint64_t& unit_free = free_[static_cast<size_t>(slot.unit)];
  slot.start = std::max(slot.issued, unit_free);
  const MemoryAccesses accesses = AccessesOf(instruction);
  for (const InFlight& earlier : in_flight_) {
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
      const uint64_t before = LinkCycles(bytes_in_);
      bytes_in_ += bytes;
      const uint64_t arrival = LinkCycles(bytes_in_);
      // Bytes are stored as they arrive; the last ones cannot be earlier than they are there.
      busy = std::max(busy, arrival > slot.start ? arrival - slot.start : 0);
      const bool is_parameters = std::holds_alternative<ParametersInstruction>(instruction);
      (is_parameters ? summary_.parameters : summary_.link_out) += arrival - before;
      break;
    }
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
      total = &summary_.vector;
      break;
  }
  slot.end = slot.start + busy;
  if (total != nullptr) *total += busy;
  if (slot.unit == Unit::kOutfeed) {
    const uint64_t link = LinkCycles(accesses.begin()->bytes);
    link_in_free_ = std::max(link_in_free_, slot.end) + link;
    summary_.link_in += link;
  }
  unit_free = slot.end;
  issued_ = slot.issued;
  place = {slot.end, accesses};
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
