// SPDX-License-Identifier: Apache-2.0
//
// Addresses of a Coral on PCIe: how its page table is split, and which of them are taken
// (docs/coral.md). Pages have 4 KiB.
//
//   simple    0             + 4 KiB x entry
//   extended  1 << 63       + 2 MiB x entry + 4 KiB x place in the entry's table of 512
#pragma once

#include <cstdint>
#include <map>

#include "atoll/status.h"

namespace atollrt {

inline constexpr uint64_t kCoralPageBytes = 4096;
inline constexpr uint32_t kCoralPageEntries = 8192;
inline constexpr uint32_t kCoralSimpleEntries = 6144;
inline constexpr uint32_t kCoralTableEntries = 512;
inline constexpr uint64_t kCoralExtended = uint64_t{1} << 63;
// 4 GiB: so all addresses have the same upper half.
inline constexpr uint64_t kCoralExtendedPages =
    uint64_t{kCoralPageEntries - kCoralSimpleEntries} * kCoralTableEntries;
// Where the queue and its status block are, each on a page: simple addresses, as Google's driver
// has them.
inline constexpr uint64_t kCoralQueueAddress = 0x100'0000;
inline constexpr uint64_t kCoralQueueBytes = 2 * kCoralPageBytes;

constexpr uint64_t CoralPageOf(uint64_t address) { return address & ~(kCoralPageBytes - 1); }
// How many pages bytes at `place`, an address on either side, touch.
constexpr uint64_t CoralPagesOf(uint64_t place, uint64_t bytes) {
  return (place % kCoralPageBytes + bytes + kCoralPageBytes - 1) / kCoralPageBytes;
}

// Gives out ranges of the extended addresses. Not thread-safe.
class CoralAddressSpace {
 public:
  // The first of `pages` pages in a row, at least 1. kResourceExhausted if there is no such gap.
  Result<uint64_t> Take(uint64_t pages);
  void Give(uint64_t address, uint64_t pages);

 private:
  std::map<uint64_t, uint64_t> taken_;  // first page and number of pages
};

}  // namespace atollrt
