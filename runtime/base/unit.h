// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace atollrt {

// What of a device can be busy: a direction of its link, or a unit, which executes instructions
// (docs/isa.md §5). Units work side by side. Numbers are those of AtollDeviceUnit.
enum class Unit : uint8_t {
  kLinkOut,  // bytes to the device
  kInfeed,
  kDma,
  kArray,
  kVector,
  kOutfeed,
  kLinkIn,     // bytes from the device
  kSequencer,  // END
};
inline constexpr size_t kUnitCount = 8;

inline const char* UnitName(Unit unit) {
  constexpr const char* kNames[kUnitCount] = {"link out", "infeed",  "DMA",     "array",
                                              "vector",   "outfeed", "link in", "sequencer"};
  return kNames[static_cast<size_t>(unit)];
}

}  // namespace atollrt
