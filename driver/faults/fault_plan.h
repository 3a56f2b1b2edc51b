// SPDX-License-Identifier: Apache-2.0
//
// FaultPlan: what shall go wrong on a bus, and when; faulty_bus.h makes it happen on USB,
// faulty_pcie_bus.h on PCIe, and both count what goes over it. People and tests say it as text:
// "seed:N:P", or a script of one fault a line (docs/faults.md, "Making things go wrong").
//
// Immutable after parsing; thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

enum class FaultWhere : uint8_t {
  kControl,  // of USB, up to kInterrupt
  kOut,
  kIn,
  kEvent,
  kInterrupt,
  kReset,  // of both kinds of buses
  kOpen,
  kRead,  // of PCIe: registers,
  kWrite,
  kVector,  // and interrupts
};
inline constexpr int kFaultWheres = 10;
enum class FaultWhat : uint8_t {
  kDrop,
  kDelay,
  kStall,
  kShorten,
  kCorrupt,
  kUnplug,
  kRepeat,
  kUnmap,
};
enum class Replug : uint8_t { kSamePort, kMoved, kTwice, kNever };

enum class FaultBus : uint8_t { kUsb, kPcie };
// Whether there is such a call there.
bool Has(FaultBus bus, FaultWhere where);

struct PlannedFault {
  FaultWhere where = FaultWhere::kOut;
  uint64_t number = 0;  // of the transfer, from 1
  FaultWhat what = FaultWhat::kDrop;
  std::chrono::milliseconds time{0};  // kDelay, kUnplug
  uint64_t bytes = 0;                 // kShorten; kUnmap: which mapping, from 1, or 0 for all
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

  // What goes wrong in a transfer, if anything does. A function of nothing else: what happened
  // before, or happens elsewhere at the same time, does not move a fault from one transfer to
  // another. At random it is something that a driver can notice. `size` bytes were asked for; of a
  // write to a register: so many mappings live.
  std::optional<PlannedFault> Find(FaultWhere where, uint64_t number, size_t size) const;
};

// kInvalidArgument, with what belongs there, if a fault of the plan's script is none of such a bus.
Status CheckSuits(const FaultPlan& plan, FaultBus bus);

// The lines of a script. kInvalidArgument with the line and what could be written instead.
Result<FaultPlan> ParseFaultScript(std::string_view text);
// "seed:N:P", or the path of a script. kNotFound if it cannot be read.
Result<FaultPlan> ReadFaultPlan(const std::string& text);

}  // namespace atollrt
