// SPDX-License-Identifier: Apache-2.0
#include "driver/device/residency.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "atoll/check.h"
#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

uint64_t SegmentBytes(const Footprint& footprint) {
  return AlignUp(footprint.parameter_bytes, kResidencyUnitBytes);
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
  Touch(&*found);
  return &found->placement;
}

// The least recently used of another set, if there is any.
ExecutableId Residency::Evict(uint32_t for_set) {
  ATOLL_CHECK(!residents_.empty());  // else CheckFits was not asked
  const auto order = [&](const Resident& resident) {
    const bool is_own = for_set != 0 && resident.set == for_set;
    return std::tuple(is_own, resident.set_used, resident.used);
  };
  const auto victim =
      std::min_element(residents_.begin(), residents_.end(),
                       [&](const Resident& a, const Resident& b) { return order(a) < order(b); });
  const ExecutableId id = victim->id;
  residents_.erase(victim);
  return id;
}

// Makes it, with all of its set, the most recently used. Among themselves these keep their order.
void Residency::Touch(Resident* used) {
  used->used = used->set_used = ++uses_;
  if (used->set == 0) return;
  for (Resident& resident : residents_) {
    if (resident.set == used->set) resident.set_used = uses_;
  }
}

Placement Residency::Place(ExecutableId id, const Footprint& footprint, uint32_t set,
                           std::vector<ExecutableId>* evicted) {
  Placement placement;
  while (!FindParameterBase(footprint, &placement.parameter_base) ||
         !FindProgramOffset(footprint, &placement.program_offset)) {
    evicted->push_back(Evict(set));
  }
  const auto behind =
      std::find_if(residents_.begin(), residents_.end(), [&](const Resident& resident) {
        return resident.placement.program_offset > placement.program_offset;
      });
  Touch(&*residents_.insert(
      behind, {.id = id, .footprint = footprint, .placement = placement, .set = set}));
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
  // Of segments that are not empty. They do not overlap: sorted, they still belong to each other.
  std::vector<uint64_t> begins, ends;
  for (const Resident& resident : residents_) {
    floor = std::max(floor, resident.footprint.activation_bytes);
    const uint64_t begin = resident.placement.parameter_base;
    const uint64_t bytes = SegmentBytes(resident.footprint);
    if (bytes == 0) continue;
    begins.push_back(begin);
    ends.push_back(begin + bytes);
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  if (!begins.empty() && begins[0] < floor) return false;
  const uint64_t bytes = SegmentBytes(footprint);
  uint64_t end = memory_bytes_;
  for (size_t i = begins.size(); i-- > 0 && ends[i] + bytes > end;) {
    end = std::min(end, begins[i]);
  }
  if (end < floor + bytes) return false;
  *base = static_cast<uint32_t>(end - bytes);
  return true;
}

bool Residency::FindProgramOffset(const Footprint& footprint, uint32_t* offset) const {
  uint64_t start = 0;
  for (const Resident& resident : residents_) {
    const uint64_t other = resident.placement.program_offset;
    if (start + footprint.program_bytes <= other) break;
    start = other + resident.footprint.program_bytes;
  }
  if (start + footprint.program_bytes > program_memory_bytes_) return false;
  *offset = static_cast<uint32_t>(start);
  return true;
}

}  // namespace atollrt
