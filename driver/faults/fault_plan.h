// SPDX-License-Identifier: Apache-2.0
//
// FaultPlan: what shall go wrong on a bus, and when; faulty_bus.h makes it happen. As text, with
// which people and tests say it (docs/faults.md):
//
//   seed:N:P         at random, in each transfer with probability P: "seed:7:1/400",
//                    "seed:7:0.01"; only what a driver can notice. What happens to a transfer is a
//                    function of N, its kind and its number.
//   a script         one fault a line, '#' begins a comment:
//     WHERE NUMBER WHAT ...    in transfer NUMBER (from 1) of that kind of a device
//     speed high               devices are at the end of a USB 2 cable
//     throttle 20MB/s          transfers take as long as on such a link
//
//   WHERE   control | out | in | event | interrupt | reset | open
//   WHAT    drop              its bytes are lost: it times out
//           delay 50ms        it comes so much later
//           stall             the device refuses it
//           shorten 100       it ends after so many bytes; OUT times out, IN goes on with the next
//           corrupt           bits of an event or of what a register says are flipped
//           unplug 300ms      the device goes; it comes back to the same port then ("never": not)
//           unplug 300ms moved      to another port
//           unplug 300ms twice      and once more at the first call after it came back
//
// Transfers are counted as faulty_bus.h says.
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
