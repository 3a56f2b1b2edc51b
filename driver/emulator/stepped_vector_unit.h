// SPDX-License-Identifier: Apache-2.0
//
// The stepped face of the emulator's vector unit: the lanes of docs/isa.md §5, "How the vector unit
// computes", each doing one operation in a cycle. It is the oracle for the bytes and the cycles of
// the instructions of the vector unit, written from that page alone; it shares no arithmetic with
// the kernels and knows no closed form: cycles are counted as they pass.
//
// A SteppedVectorUnit belongs to one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "driver/emulator/stop_signal.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"

namespace atollrt {
namespace stepped {

// What a lane holds from one cycle to the next.
struct Lane {
  int64_t value = 0;   // a sum, an extreme or an element of a first input; at most 44 bits
  int64_t second = 0;  // what the element of the second input made of it
  float real = 0;      // the sum of RESIZE_BILINEAR with INPUT_UNSIGNED
};

// The lanes and their clock. In a cycle all lanes do the same operation, each on an element of its
// own, and some may sit idle.
class Lanes {
 public:
  using Observer = std::function<void(uint64_t cycle)>;

  explicit Lanes(size_t count) : lanes_(count) {}

  size_t count() const { return lanes_.size(); }
  const Lane& operator[](size_t k) const { return lanes_[k]; }
  std::span<const Lane> all() const { return lanes_; }

  // Called at the end of each cycle with its number; empty switches it off.
  void set_observer(Observer observer) { observer_ = std::move(observer); }

  // Cycles since ResetClock().
  uint64_t cycles() const { return cycles_; }
  void ResetClock() { cycles_ = 0; }

  // One cycle: operation(lane, number) in the first `count` lanes.
  template <typename Operation>
  void Cycle(size_t count, const Operation& operation) {
    for (size_t k = 0; k < count; ++k) operation(lanes_[k], k);
    if (observer_) observer_(cycles_);
    ++cycles_;
  }

  // Takes no cycle: the operation of the next one finds this in place of what the lanes hold.
  template <typename Operation>
  void Clear(const Operation& operation) {
    for (Lane& lane : lanes_) operation(lane);
  }

  // A function (stepped_functions.h) that lane 0 computes while the others wait.
  template <typename Function>
  void ComputeInLaneZero(Function& function) {
    bool is_last = false;
    while (!is_last) {
      Cycle(1, [&](Lane&, size_t) { is_last = function.Step(); });
    }
  }

  // Brings the values of the first `count` lanes together in lane 0: those of neighbours, then
  // those of pairs, and so on.
  template <typename Combine>
  void Fold(size_t count, const Combine& combine) {
    for (size_t apart = 1; apart < count; apart *= 2) {
      Cycle(count, [&](Lane& lane, size_t k) {
        if (k % (2 * apart) != 0 || k + apart >= count) return;
        lane.value = combine(lane.value, lanes_[k + apart].value);
      });
    }
  }

  // tile(first, count): `elements` neighbours, as many at a time as there are lanes.
  template <typename Tile>
  void ForTiles(uint64_t elements, const Tile& tile) const {
    for (uint64_t first = 0; first < elements; first += lanes_.size()) {
      tile(first, std::min<size_t>(elements - first, lanes_.size()));
    }
  }

 private:
  std::vector<Lane> lanes_;
  Observer observer_;
  uint64_t cycles_ = 0;
};

}  // namespace stepped

class SteppedVectorUnit {
 public:
  // `lanes` is at least 1: C of docs/isa.md.
  explicit SteppedVectorUnit(uint32_t lanes);

  // Runs one instruction of the vector unit on `memory`, the on-chip memory, and returns the cycles
  // that it took, issue not included. Precondition: the instruction passes the checks of
  // docs/isa.md §4 with these segments and this memory. Writes the output tensor and nothing else.
  uint64_t Run(const Instruction& instruction, const Segments& segments, std::span<uint8_t> memory);

  // Filters and poolings in progress end early when it says so; the others take no time to speak
  // of.
  void set_stop(const StopSignal& stop) { stop_ = stop; }

  // The lanes, as the latest cycle left them; their observer is for tests.
  stepped::Lanes& lanes() { return lanes_; }

 private:
  stepped::Lanes lanes_;
  StopSignal stop_;
};

}  // namespace atollrt
