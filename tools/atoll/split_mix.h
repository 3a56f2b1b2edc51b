// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace atollcmd {

// Random numbers that are the same everywhere: splitmix64.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // From 0 to below 1.
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // From 0 to below `count`, which is at most 2^32.
  size_t Below(size_t count) {
    return static_cast<size_t>((Next() >> 32) * static_cast<uint64_t>(count) >> 32);
  }

 private:
  uint64_t state_;
};

}  // namespace atollcmd
