// SPDX-License-Identifier: Apache-2.0
//
// Residency plan: several models take turns on one device; which of them stay on it, who makes room
// for whom, and what that costs. The driver's Residency decides, asked as Device would ask it.
// Times are modelled. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "driver/device/device_info.h"
#include "driver/device/residency.h"
#include "runtime/interpreter.h"

namespace atollrt {

inline constexpr size_t kMaxResidencyModels = 12;

// What brings an executable to the device.
struct Upload {
  uint64_t bytes = 0;  // on bulk OUT, all records
  // Its programs' way over the link, and the caching program.
  double seconds = 0;
};
Upload UploadOf(const Executable& executable, const DeviceInfo& device);

// One partition of a model.
struct ResidencyPart {
  Footprint footprint;
  Upload upload;
  double inference_seconds = 0;  // while it is resident
};
// In the order in which they run.
using ResidencyModel = std::vector<ResidencyPart>;
ResidencyModel ResidencyModelOf(const Interpreter& interpreter);

struct ResidencyMemory {
  uint64_t memory_bytes = 0;  // on chip
  uint64_t program_memory_bytes = 0;
};

// One inference of one model.
struct ResidencyTurn {
  size_t model = 0;
  Upload upload;                // of the parts that were not on the device
  std::vector<size_t> evicted;  // models, ascending, that lost a part; may be the same one
};
// One inference of each model, in their order.
using ResidencyRound = std::vector<ResidencyTurn>;

struct ResidencyPlan {
  bool all_fit = false;  // once they are on the device, all models stay
  // Rounds on a device that is empty at first. Those from `repeating_round` on go on for ever.
  std::vector<ResidencyRound> rounds;
  size_t repeating_round = 0;
  double round_seconds = 0;           // of the repeating ones, on average
  double resident_round_seconds = 0;  // if all models were on the device
  // With so much of either, and enough of the other, all would fit; 0: not with 4 GiB.
  ResidencyMemory needed;
  // Per model: whether it belongs to the models that fit together and save the most seconds of
  // upload in a round.
  std::vector<bool> in_subset;
};

// kInvalidArgument unless there are 1 to kMaxResidencyModels models; kResourceExhausted, with the
// numbers, if a part does not even fit the device alone.
Result<ResidencyPlan> PlanResidency(std::span<const ResidencyModel> models,
                                    const ResidencyMemory& memory);

}  // namespace atollrt
