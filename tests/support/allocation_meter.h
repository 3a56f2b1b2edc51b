// SPDX-License-Identifier: Apache-2.0
//
// What the process takes from the allocator: how often, how much, and how much at once. Whatever
// links atoll_test_meter has its malloc, free and operator new counted, on all threads, with the
// sanitizers, too (ThreadSanitizer: all but aligned blocks), and every Buffer: a large one in full,
// though its pages take memory only once they are written. Files that are mapped do not count.
#pragma once

#include <cstddef>
#include <cstdint>

namespace atollrt {

// Counts from its construction on. Meters may be nested; the peak is that of the process, so two
// that overlap without being nested disturb each other's.
class AllocationMeter {
 public:
  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  // Calls that gave memory; one that made a block larger is one.
  int64_t count() const;
  // The sum of the sizes that they gave, which may be more than was asked for.
  int64_t total_bytes() const;
  // The most that was held at once, beyond what was held at construction.
  int64_t peak_bytes() const;

 private:
  int64_t first_count_, first_total_, first_live_, outer_peak_;
};

// While it lives, an allocation that brings what is held `bytes` above what was held at
// construction ends the process with a sentence on stderr and SIGABRT, before anything else is done
// with the memory. Limits may be nested; the inner one counts, unless the outer one is reached
// earlier.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  int64_t outer_limit_;
};

// What a parser may hold at once for an input of `input_bytes` from a stranger, beyond the input
// itself: memory in proportion to what had to be sent, and not to the numbers that are written
// there. `constant` is what it takes for the smallest input.
constexpr int64_t ProportionalBytes(size_t input_bytes, int64_t constant = int64_t{1} << 16) {
  constexpr int64_t kBytesPerByte = 64;
  return kBytesPerByte * static_cast<int64_t>(input_bytes) + constant;
}

}  // namespace atollrt
