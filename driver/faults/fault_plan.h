// SPDX-License-Identifier: Apache-2.0
//
// FaultPlan: what shall go wrong on a bus, and when; faulty_bus.h makes it happen, and counts
// transfers. People and tests say it as text: "seed:N:P", or a script of one fault a line
// (docs/faults.md, "Making things go wrong").
//
// Immutable after parsing; thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

enum class FaultWhere : uint8_t { kControl, kOut, kIn, kEvent, kInterrupt, kReset, kOpen };
enum class FaultWhat : uint8_t { kDrop, kDelay, kStall, kShorten, kCorrupt, kUnplug };
enum class Replug : uint8_t { kSamePort, kMoved, kTwice, kNever };
inline constexpr int kFaultWheres = 7;

struct PlannedFault {
  FaultWhere where = FaultWhere::kOut;
  uint64_t number = 0;  // of the transfer, from 1
  FaultWhat what = FaultWhat::kDrop;
  std::chrono::milliseconds time{0};  // kDelay, kUnplug
  uint64_t bytes = 0;                 // kShorten
  Replug replug = Replug::kSamePort;  // kUnplug
  bool operator==(const PlannedFault&) const = default;
};

// "unplug 300ms twice in out 12", for the log.
std::string Describe(const PlannedFault& fault);
// Whether `what` can happen to a call there.
bool CanHappen(FaultWhere where, FaultWhat what);

struct FaultPlan {
  std::vector<PlannedFault> faults;  // of a script
  bool high_speed = false;
  uint64_t bytes_per_second = 0;  // 0: unlimited
  bool random = false;
  uint64_t seed = 0;
  double probability = 0;  // in each transfer
  bool operator==(const FaultPlan&) const = default;
};

// The lines of a script. kInvalidArgument with the line and what could be written instead.
Result<FaultPlan> ParseFaultScript(std::string_view text);
// "seed:N:P", or the path of a script. kNotFound if it cannot be read.
Result<FaultPlan> ReadFaultPlan(const std::string& text);

}  // namespace atollrt
