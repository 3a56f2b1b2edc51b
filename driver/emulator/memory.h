// SPDX-License-Identifier: Apache-2.0
//
// OnChipMemory: the bytes that a program computes on, and when they last changed. Time is counted
// in writes and kept per page, so that whoever derives something from the bytes (packed weights)
// can tell later whether it still holds. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"

namespace atollrt {

class OnChipMemory {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  // kResourceExhausted if the host has not that much.
  static Result<OnChipMemory> Allocate(uint64_t size_bytes);

  uint64_t size() const { return bytes_.size(); }
  bool Contains(uint64_t address, uint64_t size_bytes) const {
    return address <= size() && size_bytes <= size() - address;
  }

  // The bytes [address, address + size_bytes), which the memory must contain. WriteAt counts as a
  // change of all of them, so call it anew for every write.
  const uint8_t* ReadAt(uint64_t address, uint64_t size_bytes) const {
    ATOLL_CHECK(Contains(address, size_bytes));
    return bytes_.data() + address;
  }
  uint8_t* WriteAt(uint64_t address, uint64_t size_bytes);

  // Changes all bytes to what a program must not rely on (Undefine).
  void Undefine();

  // All bytes; a change made through them must be announced by WriteAt.
  std::span<uint8_t> bytes() { return bytes_.bytes(); }

  // The present time, for ChangedSince.
  uint64_t now() const { return now_; }
  // False only if none of the bytes changed after `time`; true also if a neighbour on the same
  // page did.
  bool ChangedSince(uint64_t time, uint64_t address, uint64_t size_bytes) const;

 private:
  Buffer bytes_;
  std::vector<uint64_t> page_changed_;  // time of the last write
  uint64_t now_ = 0;
};

// Fills a memory of the device as after a reset. Devices, recordings and profiles may speak of
// gigabytes, of which only what is written takes memory of the host: beyond the first 64 MiB, more
// than chips have, they are zeros.
void Undefine(Buffer* memory);

}  // namespace atollrt
