// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/stepped_sequencer.h"

#include <algorithm>
#include <variant>

#include "atoll/check.h"

namespace atollrt {
namespace {

constexpr uint64_t kFetchCycles = 64;
constexpr size_t kInFlight = 16;

bool Touches(const MemoryAccess& a, const MemoryAccess& b) {
  // Addresses in different segments do not collide.
  if (((a.address ^ b.address) & kParameterSegment) != 0) return false;
  const uint64_t a_first = a.address & ~kParameterSegment;
  const uint64_t b_first = b.address & ~kParameterSegment;
  return a_first < b_first ? b_first - a_first < a.bytes : a_first - b_first < b.bytes;
}

bool Changes(const MemoryAccess& access) {
  return access.kind == MemoryAccess::Kind::kWrite || access.kind == MemoryAccess::Kind::kReadWrite;
}

// Whether one writes memory that the other touches.
bool Collide(const MemoryAccesses& a, const MemoryAccesses& b) {
  return std::any_of(a.begin(), a.end(), [&](const MemoryAccess& x) {
    return std::any_of(b.begin(), b.end(), [&](const MemoryAccess& y) {
      return (Changes(x) || Changes(y)) && Touches(x, y);
    });
  });
}

}  // namespace

// ceil(bytes · clock / link rate).
uint64_t SteppedSequencer::Journey(uint64_t bytes) const {
  const uint64_t rate = options_.link_bytes_per_second;
  if (rate == 0) return 0;
  const unsigned __int128 product = static_cast<unsigned __int128>(bytes) * options_.clock_hz;
  return static_cast<uint64_t>((product + rate - 1) / rate);
}

void SteppedSequencer::Add(const Instruction& instruction, uint64_t cycles) {
  Entry& entry = program_.emplace_back();
  entry.unit = UnitOf(instruction);
  entry.cycles = cycles;
  entry.accesses = AccessesOf(instruction);
  if (const auto* conv = std::get_if<Conv2DInstruction>(&instruction)) {
    entry.last_position =
        2 * ((uint64_t{conv->output_c} + options_.columns - 1) / options_.columns);
  } else if (entry.unit == Unit::kInfeed || entry.unit == Unit::kOutfeed) {
    entry.link_bytes = entry.accesses.begin()->bytes;
  }
  entry.is_chained = ChainedAdd(instruction) != nullptr;
  // The first tile of weights.
  if (entry.unit == Unit::kArray) entry.cycles += options_.rows;
}

// Its unit is idle, and it is the first in that unit's queue.
bool SteppedSequencer::MayStart(size_t index) const {
  const Entry& entry = program_[index];
  if (entry.unit == Unit::kSequencer) return first_running_ == index;
  if (entry.is_chained && program_[index - 1].state < State::kRunning) return false;
  for (size_t earlier = first_running_; earlier < index; ++earlier) {
    if (program_[earlier].state == State::kDone) continue;
    if (entry.is_chained && earlier + 1 == index) continue;
    if (Collide(program_[earlier].accesses, entry.accesses)) return false;
  }
  return true;
}

void SteppedSequencer::Start(size_t index) {
  Entry& entry = program_[index];
  entry.state = State::kRunning;
  entry.ends = now_ + entry.cycles;
  if (entry.unit == Unit::kInfeed) entry.ends = std::max(entry.ends, entry.arrives);
  if (entry.is_chained) {
    const Entry& conv = program_[index - 1];
    entry.ends = std::max(entry.ends, conv.ends + conv.last_position);
  }
}

bool SteppedSequencer::FinishOne() {
  for (std::optional<size_t>& running : running_) {
    if (!running.has_value() || program_[*running].ends != now_) continue;
    Entry& entry = program_[*running];
    entry.state = State::kDone;
    if (entry.unit == Unit::kOutfeed) outgoing_.push_back(entry.link_bytes);
    running.reset();
    while (first_running_ < program_.size() && program_[first_running_].state == State::kDone) {
      ++first_running_;
    }
    return true;
  }
  return false;
}

bool SteppedSequencer::IssueOne() {
  if (next_issue_ == program_.size() || now_ < may_issue_) return false;
  if (next_issue_ >= first_running_ + kInFlight) return false;
  Entry& entry = program_[next_issue_];
  entry.state = State::kIssued;
  queues_[static_cast<size_t>(entry.unit)].push_back(next_issue_);
  ++next_issue_;
  may_issue_ = now_ + kFetchCycles;
  return true;
}

bool SteppedSequencer::StartOne() {
  for (size_t unit = 0; unit < kUnitCount; ++unit) {
    std::deque<size_t>& queue = queues_[unit];
    if (running_[unit].has_value() || queue.empty() || !MayStart(queue.front())) continue;
    Start(queue.front());
    running_[unit] = queue.front();
    queue.pop_front();
    return true;
  }
  return false;
}

bool SteppedSequencer::SendOne() {
  if (outgoing_.empty() || now_ < link_is_free_) return false;
  link_is_free_ = now_ + Journey(outgoing_.front());
  outgoing_.pop_front();
  return true;
}

uint64_t SteppedSequencer::NextEvent() const {
  uint64_t next = UINT64_MAX;
  for (const std::optional<size_t>& running : running_) {
    if (running.has_value()) next = std::min(next, program_[*running].ends);
  }
  if (next_issue_ < program_.size() && may_issue_ > now_) next = std::min(next, may_issue_);
  if (!outgoing_.empty()) next = std::min(next, link_is_free_);
  return next;
}

SteppedTimes SteppedSequencer::Run(uint64_t bytes_ahead) {
  SteppedTimes times;
  now_ = 0;
  first_running_ = next_issue_ = 0;
  may_issue_ = kFetchCycles;
  link_is_free_ = 0;
  uint64_t bytes = 0;  // that have left the host
  for (Entry& entry : program_) {
    entry.state = State::kWaiting;
    if (entry.unit != Unit::kInfeed) continue;
    bytes += entry.link_bytes;
    entry.arrives = bytes > bytes_ahead ? Journey(bytes - bytes_ahead) : 0;
    times.link_out = entry.arrives;
  }
  for (;;) {
    while (FinishOne() || IssueOne() || StartOne() || SendOne()) {
    }
    if (first_running_ == program_.size() && times.computed == 0) times.computed = now_;
    if (first_running_ == program_.size() && outgoing_.empty()) break;
    const uint64_t next = NextEvent();
    ATOLL_CHECK(next != UINT64_MAX && next > now_);  // something always runs
    now_ = next;
  }
  times.delivered = link_is_free_;
  times.total = std::max(times.computed, times.delivered);
  for (const Entry& entry : program_) {
    if (entry.unit == Unit::kOutfeed) times.link_in += Journey(entry.link_bytes);
  }
  return times;
}

}  // namespace atollrt
