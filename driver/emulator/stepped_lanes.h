// SPDX-License-Identifier: Apache-2.0
//
// The lanes of the stepped vector unit and their clock: docs/isa.md §5, "How the vector unit
// computes". In a cycle all lanes do the same operation, each on an element of its own, and some
// may sit idle. Part of stepped_vector_unit.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace atollrt::stepped {

// What a lane holds from one cycle to the next.
struct Lane {
  int64_t value = 0;   // a sum, an extreme or an element of a first input; at most 44 bits
  int64_t second = 0;  // what the element of the second input made of it
  float real = 0;      // the sum of RESIZE_BILINEAR with INPUT_UNSIGNED
};

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

}  // namespace atollrt::stepped
