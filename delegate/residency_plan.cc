// SPDX-License-Identifier: Apache-2.0
#include "delegate/residency_plan.h"

#include <algorithm>
#include <map>

#include "delegate/compiler.h"
#include "driver/atoll1/protocol.h"
#include "driver/isa/timing.h"

namespace atollrt {
namespace {

// Addresses have 32 bits.
constexpr uint64_t kLargestMemory = (uint64_t{1} << 32) - kResidencyUnitBytes;
// Placements repeat after a few rounds; the bound makes sure that this ends.
constexpr size_t kMaxRounds = 64;

// A device with nothing but its residency, to which models come in turns.
class Turns {
 public:
  Turns(std::span<const ResidencyModel> models, const ResidencyMemory& memory)
      : models_(models), residency_(memory.memory_bytes, memory.program_memory_bytes) {
    for (size_t model = 0; model < models.size(); ++model) {
      first_.push_back(static_cast<ExecutableId>(model_of_.size()) + 1);
      model_of_.insert(model_of_.end(), models[model].size(), model);
    }
  }

  // What is where between two rounds. As every round uses all parts in the same order, the order in
  // which they were last used follows from it.
  using State = std::map<ExecutableId, std::pair<uint32_t, uint32_t>>;
  const State& state() const { return state_; }

  ResidencyTurn Run(size_t model) {
    ResidencyTurn turn{.model = model, .upload = {}, .evicted = {}};
    ExecutableId id = first_[model] - 1;
    for (const ResidencyPart& part : models_[model]) {
      if (residency_.Use(++id) != nullptr) continue;
      std::vector<ExecutableId> evicted;
      const Placement placement =
          residency_.Place(id, part.footprint, static_cast<uint32_t>(model) + 1, &evicted);
      state_[id] = {placement.program_offset, placement.parameter_base};
      turn.upload.bytes += part.upload.bytes;
      turn.upload.seconds += part.upload.seconds;
      for (const ExecutableId gone : evicted) {
        state_.erase(gone);
        turn.evicted.push_back(model_of_[gone - 1]);
      }
    }
    std::sort(turn.evicted.begin(), turn.evicted.end());
    turn.evicted.erase(std::unique(turn.evicted.begin(), turn.evicted.end()), turn.evicted.end());
    return turn;
  }

 private:
  const std::span<const ResidencyModel> models_;
  // Parts are numbered from 1, model by model.
  std::vector<ExecutableId> first_;  // of each model
  std::vector<size_t> model_of_;
  Residency residency_;
  State state_;
};

// Whether the models that `chosen` marks stay on the device once they are on it: the second round
// uploads nothing.
bool Fit(std::span<const ResidencyModel> models, const std::vector<bool>& chosen,
         const ResidencyMemory& memory) {
  Turns turns(models, memory);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < models.size(); ++i) {
      if (chosen[i] && turns.Run(i).upload.bytes > 0 && round > 0) return false;
    }
  }
  return true;
}

bool EachFitsAlone(std::span<const ResidencyModel> models, const ResidencyMemory& memory) {
  const Residency residency(memory.memory_bytes, memory.program_memory_bytes);
  for (const ResidencyModel& model : models) {
    for (const ResidencyPart& part : model) {
      if (!residency.CheckFits(part.footprint).ok()) return false;
    }
  }
  return true;
}

// The fewest units with which `fits`, which larger numbers do, too; 0 if `most` are not enough.
template <typename Predicate>
uint64_t FewestUnits(uint64_t most, const Predicate& fits) {
  if (!fits(most)) return 0;
  uint64_t too_few = 0;
  while (most - too_few > 1) {
    const uint64_t middle = too_few + (most - too_few) / 2;
    (fits(middle) ? most : too_few) = middle;
  }
  return most;
}

ResidencyMemory NeededMemory(std::span<const ResidencyModel> models) {
  const std::vector<bool> all(models.size(), true);
  // The least of one kind of memory, in units, with enough of the other.
  const auto least = [&](uint64_t ResidencyMemory::*kind, uint64_t unit) {
    return unit * FewestUnits(kLargestMemory / unit, [&](uint64_t units) {
             ResidencyMemory memory{kLargestMemory, kLargestMemory};
             memory.*kind = units * unit;
             return EachFitsAlone(models, memory) && Fit(models, all, memory);
           });
  };
  return {.memory_bytes = least(&ResidencyMemory::memory_bytes, kResidencyUnitBytes),
          .program_memory_bytes = least(&ResidencyMemory::program_memory_bytes, kInstructionBytes)};
}

// Of all sets that fit, the one whose uploads take the longest; the first of equals.
std::vector<bool> BestSubset(std::span<const ResidencyModel> models,
                             const ResidencyMemory& memory) {
  std::vector<bool> best(models.size());
  double best_seconds = -1;
  // From all models down, so that larger sets are the first of equals.
  for (uint32_t bits = (1u << models.size()) - 1; bits > 0; --bits) {
    std::vector<bool> chosen(models.size());
    double seconds = 0;
    for (size_t i = 0; i < models.size(); ++i) {
      chosen[i] = (bits >> (models.size() - 1 - i) & 1) != 0;
      if (!chosen[i]) continue;
      for (const ResidencyPart& part : models[i]) seconds += part.upload.seconds;
    }
    if (seconds <= best_seconds || !Fit(models, chosen, memory)) continue;
    best_seconds = seconds;
    best = std::move(chosen);
  }
  return best;
}

}  // namespace

Upload UploadOf(const Executable& executable, const DeviceInfo& device) {
  const Footprint footprint = FootprintOf(executable);
  Upload upload;
  upload.bytes = kRecordHeaderBytes + kInstructionsPrefixBytes + footprint.program_bytes;
  if (device.link_bytes_per_second > 0) {  // 0: the link takes no time
    upload.seconds = static_cast<double>(footprint.program_bytes) /
                     static_cast<double>(device.link_bytes_per_second);
  }
  if (executable.caching_program.empty()) return upload;
  upload.bytes += kRecordHeaderBytes + kStartBytes;
  if (footprint.parameter_bytes > 0) {
    upload.bytes += kRecordHeaderBytes + footprint.parameter_bytes;
  }
  const ScheduleSummary caching =
      SummarizeProgram(executable.caching_program, ScheduleOptionsOf(device));
  upload.seconds += static_cast<double>(caching.total) / static_cast<double>(device.clock_hz);
  return upload;
}

ResidencyModel ResidencyModelOf(const Interpreter& interpreter) {
  ResidencyModel model;
  for (const int32_t partition : interpreter.PartitionOrder()) {
    const PartitionReport& report = *interpreter.partitions()[partition].report;
    ResidencyPart& part = model.emplace_back();
    part.footprint.program_bytes = report.program_bytes;
    part.footprint.parameter_bytes = report.resident_parameter_bytes;
    part.footprint.activation_bytes = report.activation_bytes;
    part.upload.bytes = report.upload_bytes;
    part.upload.seconds = report.upload_seconds;
    part.inference_seconds = report.latency.total;
  }
  return model;
}

Result<ResidencyPlan> PlanResidency(std::span<const ResidencyModel> models,
                                    const ResidencyMemory& memory) {
  if (models.empty() || models.size() > kMaxResidencyModels) {
    return InvalidArgument("%zu models to plan the residency of; must be 1 to %zu", models.size(),
                           kMaxResidencyModels);
  }
  const Residency device(memory.memory_bytes, memory.program_memory_bytes);
  for (size_t i = 0; i < models.size(); ++i) {
    for (const ResidencyPart& part : models[i]) {
      ATOLL_RETURN_IF_ERROR(
          device.CheckFits(part.footprint).WithContext(Format("model %zu of the plan", i)));
    }
  }

  ResidencyPlan plan;
  Turns turns(models, memory);
  std::vector<Turns::State> states = {turns.state()};
  do {
    ResidencyRound& round = plan.rounds.emplace_back();
    for (size_t i = 0; i < models.size(); ++i) round.push_back(turns.Run(i));
    const auto seen = std::find(states.begin(), states.end(), turns.state());
    if (seen != states.end()) {
      plan.repeating_round = static_cast<size_t>(seen - states.begin());
      break;
    }
    plan.repeating_round = plan.rounds.size() - 1;
    states.push_back(turns.state());
  } while (plan.rounds.size() < kMaxRounds);

  for (const ResidencyModel& model : models) {
    for (const ResidencyPart& part : model) plan.resident_round_seconds += part.inference_seconds;
  }
  plan.all_fit = true;
  double upload_seconds = 0;
  for (size_t r = plan.repeating_round; r < plan.rounds.size(); ++r) {
    for (const ResidencyTurn& turn : plan.rounds[r]) {
      plan.all_fit = plan.all_fit && turn.upload.bytes == 0;
      upload_seconds += turn.upload.seconds;
    }
  }
  plan.round_seconds =
      plan.resident_round_seconds +
      upload_seconds / static_cast<double>(plan.rounds.size() - plan.repeating_round);
  plan.needed = NeededMemory(models);
  plan.in_subset = BestSubset(models, memory);
  return plan;
}

}  // namespace atollrt
