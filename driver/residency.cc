// SPDX-License-Identifier: Apache-2.0
#include "driver/residency.h"

#include <algorithm>

#include "runtime/base/bytes.h"
#include "runtime/base/check.h"

namespace atollrt {
namespace {

uint64_t SegmentBytes(const Footprint& footprint) {
  return AlignUp(footprint.parameter_bytes, kResidencyUnitBytes);
}

bool Overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

Footprint FootprintOf(const Executable& executable) {
  const size_t instructions =
      executable.caching_program.size() + executable.inference_program.size();
  return {.program_bytes = instructions * kInstructionBytes,
          .parameter_bytes = executable.resident_parameters.size(),
          .activation_bytes = executable.activation_bytes};
}

Residency::Residency(uint64_t memory_bytes, uint64_t program_memory_bytes)
    : memory_bytes_(memory_bytes / kResidencyUnitBytes * kResidencyUnitBytes),
      program_memory_bytes_(program_memory_bytes) {}

Status Residency::CheckFits(const Footprint& footprint) const {
  if (footprint.program_bytes > program_memory_bytes_) {
    return ResourceExhausted("programs of %llu bytes, the device has program memory for %llu",
                             static_cast<unsigned long long>(footprint.program_bytes),
                             static_cast<unsigned long long>(program_memory_bytes_));
  }
  if (footprint.activation_bytes + SegmentBytes(footprint) > memory_bytes_) {
    return ResourceExhausted(
        "%llu bytes of activations and %llu of resident parameters, the device has %llu bytes of "
        "on-chip memory for both",
        static_cast<unsigned long long>(footprint.activation_bytes),
        static_cast<unsigned long long>(footprint.parameter_bytes),
        static_cast<unsigned long long>(memory_bytes_));
  }
  return {};
}

const Placement* Residency::Use(ExecutableId id) {
  const auto found = std::find_if(residents_.begin(), residents_.end(),
                                  [id](const Resident& resident) { return resident.id == id; });
  if (found == residents_.end()) return nullptr;
  const Resident resident = *found;
  residents_.erase(found);
  Touch(resident.set);
  residents_.push_back(resident);
  return &residents_.back().placement;
}

// The least recently used of another set, if there is any.
ExecutableId Residency::Evict(uint32_t for_set) {
  ATOLL_CHECK(!residents_.empty());  // else CheckFits was not asked
  auto victim = std::find_if(residents_.begin(), residents_.end(), [&](const Resident& resident) {
    return for_set == 0 || resident.set != for_set;
  });
  if (victim == residents_.end()) victim = residents_.begin();
  const ExecutableId id = victim->id;
  residents_.erase(victim);
  return id;
}

// Makes the members of a set the most recently used, in the order that they have.
void Residency::Touch(uint32_t set) {
  if (set == 0) return;
  auto end = residents_.end();
  for (auto resident = residents_.begin(); resident != end;) {
    if (resident->set == set) {
      std::rotate(resident, resident + 1, residents_.end());
      --end;
    } else {
      ++resident;
    }
  }
}

Placement Residency::Place(ExecutableId id, const Footprint& footprint, uint32_t set,
                           std::vector<ExecutableId>* evicted) {
  Placement placement;
  while (!FindParameterBase(footprint, &placement.parameter_base) ||
         !FindProgramOffset(footprint, &placement.program_offset)) {
    evicted->push_back(Evict(set));
  }
  Touch(set);
  residents_.push_back({id, footprint, placement, set});
  return placement;
}

uint64_t Residency::used_bytes() const {
  uint64_t activations = 0;
  uint64_t segments = 0;
  for (const Resident& resident : residents_) {
    activations = std::max(activations, resident.footprint.activation_bytes);
    segments += SegmentBytes(resident.footprint);
  }
  return activations + segments;
}

void Residency::Remove(ExecutableId id) {
  std::erase_if(residents_, [id](const Resident& resident) { return resident.id == id; });
}

// The highest gap for the parameter segment above everyone's activations. False also if a segment
// that is resident already lies too low for the activations of the new executable.
bool Residency::FindParameterBase(const Footprint& footprint, uint32_t* base) const {
  uint64_t floor = footprint.activation_bytes;
  std::vector<uint64_t> ends = {memory_bytes_};
  for (const Resident& resident : residents_) {
    floor = std::max(floor, resident.footprint.activation_bytes);
    ends.push_back(resident.placement.parameter_base);
  }
  for (const Resident& resident : residents_) {
    if (resident.placement.parameter_base < floor) return false;
  }
  const uint64_t bytes = SegmentBytes(footprint);
  std::sort(ends.rbegin(), ends.rend());
  for (const uint64_t end : ends) {
    if (end < floor + bytes) return false;
    const bool is_free =
        std::none_of(residents_.begin(), residents_.end(), [&](const Resident& resident) {
          return Overlap(end - bytes, bytes, resident.placement.parameter_base,
                         SegmentBytes(resident.footprint));
        });
    if (!is_free) continue;
    *base = static_cast<uint32_t>(end - bytes);
    return true;
  }
  return false;
}

bool Residency::FindProgramOffset(const Footprint& footprint, uint32_t* offset) const {
  std::vector<uint64_t> starts = {0};
  for (const Resident& resident : residents_) {
    starts.push_back(resident.placement.program_offset + resident.footprint.program_bytes);
  }
  std::sort(starts.begin(), starts.end());
  for (const uint64_t start : starts) {
    if (start + footprint.program_bytes > program_memory_bytes_) return false;
    const bool is_free =
        std::none_of(residents_.begin(), residents_.end(), [&](const Resident& resident) {
          return Overlap(start, footprint.program_bytes, resident.placement.program_offset,
                         resident.footprint.program_bytes);
        });
    if (!is_free) continue;
    *offset = static_cast<uint32_t>(start);
    return true;
  }
  return false;
}

}  // namespace atollrt
