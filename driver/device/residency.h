// SPDX-License-Identifier: Apache-2.0
//
// Residency: which executables are on the device at the moment, and where. The policy:
//
//   on-chip memory   [ one activation region |  free  | parameter segments ... ]
//                    0                                                    memory_bytes
//
// - The activation region begins at 0, is shared by all (requests run one at a time) and is as
//   large as the largest resident executable needs.
// - Parameter segments are whole 4 KiB units, each in the highest gap that takes it. Programs lie
//   in program memory, each in the lowest gap.
// - When one finds no room, the least recently used resident executable is evicted, until it does.
//
// It plans only; it does no I/O. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "atoll/status.h"
#include "driver/device/device_info.h"
#include "driver/isa/executable.h"

namespace atollrt {

inline constexpr uint64_t kResidencyUnitBytes = 4096;

// What an executable takes up on the device.
struct Footprint {
  uint64_t program_bytes = 0;  // both programs
  uint64_t parameter_bytes = 0;
  uint64_t activation_bytes = 0;
};

Footprint FootprintOf(const Executable& executable);

struct Placement {
  uint32_t program_offset = 0;  // in program memory, a multiple of 128
  uint32_t parameter_base = 0;  // in on-chip memory
  bool operator==(const Placement&) const = default;
};

class Residency {
 public:
  Residency(uint64_t memory_bytes, uint64_t program_memory_bytes);

  // kResourceExhausted, with the numbers, if `footprint` would not fit even an empty device.
  Status CheckFits(const Footprint& footprint) const;

  // Where `id` is, or nullptr if it is not resident. Makes it the most recently used. The pointer
  // is valid until the next call.
  const Placement* Use(ExecutableId id);

  // Gives `id`, which is not resident and fits an empty device, a place as the most recently used,
  // and appends to `evicted` those that had to go. `set`, if it is not 0, is its residency set
  // (LoadOptions).
  Placement Place(ExecutableId id, const Footprint& footprint, uint32_t set,
                  std::vector<ExecutableId>* evicted);

  // On-chip memory that is taken: the activation region and all parameter segments.
  uint64_t used_bytes() const;

  // Takes one executable, or all of them, off the device; absent ones are ignored.
  void Remove(ExecutableId id);
  void Clear() { residents_.clear(); }

 private:
  struct Resident {
    ExecutableId id = 0;
    Footprint footprint;
    Placement placement;
    uint32_t set = 0;
    // When it was used, and when one of its set was, by counting.
    uint64_t used = 0;
    uint64_t set_used = 0;
  };
  ExecutableId Evict(uint32_t for_set);
  void Touch(Resident* used);
  bool FindParameterBase(const Footprint& footprint, uint32_t* base) const;
  bool FindProgramOffset(const Footprint& footprint, uint32_t* offset) const;

  uint64_t memory_bytes_;  // rounded down to whole units
  uint64_t program_memory_bytes_;
  std::vector<Resident> residents_;  // in the order of their programs
  uint64_t uses_ = 0;
};

}  // namespace atollrt
