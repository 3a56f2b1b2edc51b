// SPDX-License-Identifier: Apache-2.0
//
// Choices: what a generator of random things decides by. From a seed they are random; from bytes
// they are whatever a fuzzer wants them to be, so that it can grow, keep and minimize what the
// generator makes. Every choice takes as few bytes as its range needs, and once they are used up
// the first possibility is taken.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "tests/support/rng.h"

namespace atollrt {

class Choices {
 public:
  explicit Choices(uint64_t seed) : rng_(seed) {}
  // Borrows the bytes.
  explicit Choices(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // Whether the bytes are used up; never with a seed.
  bool exhausted() const { return !rng_ && bytes_.empty(); }

  // In [low, high].
  int32_t Int(int32_t low, int32_t high) {
    if (rng_) return rng_->Int32(low, high);
    const uint64_t count = static_cast<uint64_t>(int64_t{high} - low) + 1;
    uint64_t value = 0;
    for (uint64_t range = 1; range < count && !bytes_.empty(); range *= 256) {
      value = value * 256 + bytes_[0];
      bytes_ = bytes_.subspan(1);
    }
    return static_cast<int32_t>(low + static_cast<int64_t>(value % count));
  }

  // True once in `n` times; false when bytes are used up.
  bool OneIn(int32_t n) { return Int(1, n) == n; }

  template <typename T>
  T Pick(std::initializer_list<T> choices) {
    return choices.begin()[Int(0, static_cast<int32_t>(choices.size()) - 1)];
  }
  template <typename T>
  const T& Pick(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(Int(0, static_cast<int32_t>(choices.size()) - 1))];
  }

 private:
  std::optional<Rng> rng_;  // or
  std::span<const uint8_t> bytes_;
};

}  // namespace atollrt
