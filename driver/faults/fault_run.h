// SPDX-License-Identifier: Apache-2.0
//
// FaultRun: a FaultPlan while it is carried out on a bus of either kind: how far it is on each
// device, which of them are away, and whose time it is.
//
// Devices are known by their places on the bus below (a USB port, a PCI address); to those above
// they may have moved elsewhere. Between two times that it goes, a device is on one *visit*: who
// opened it then has lost it afterwards, even when it is back.
//
// Time is the caller's: with a clock of its own that sleep_until moves, nothing ever waits. The
// devices below are then asked in real time, for at most a moment.
//
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "driver/faults/fault_plan.h"
#include "runtime/base/clock.h"

namespace atollrt {

struct FaultOptions {
  // How long who lost something is kept, at most.
  std::chrono::milliseconds patience{1000};
  NowFunction now = Clock::now;
  // Returns when now() has reached the time. nullptr: sleeps.
  std::function<void(Deadline)> sleep_until;
};

class FaultRun {
 public:
  // Where the device of a place goes the n-th time that one moves.
  using MovedFunction = std::function<std::string(const std::string& place, int n)>;

  FaultRun(FaultPlan plan, FaultOptions options, MovedFunction moved)
      : plan_(std::move(plan)), options_(std::move(options)), moved_(std::move(moved)) {}

  const FaultPlan& plan() const { return plan_; }

  // Time.
  bool real_time() const { return options_.sleep_until == nullptr; }
  Deadline now() const { return options_.now(); }
  void SleepUntil(Deadline time) const;
  // What the device below gets for a call.
  Deadline InnerDeadline(Deadline deadline) const;
  // The device below had its time and did not answer.
  template <typename T>
  T Passed(T result, Deadline deadline) const {
    if (result.code() == StatusCode::kTimeout && !real_time()) SleepUntil(deadline);
    return result;
  }
  // Something got lost on the way.
  Status Lose(Deadline deadline) const;
  // An answer is late.
  Status Delay(const PlannedFault& fault, Deadline deadline) const;

  // What goes wrong in the next call of that kind, if anything does: counts it, and what happens.
  std::optional<PlannedFault> Next(const std::string& place, FaultWhere where, size_t size);
  // The two halves of Next, for what has been found in the plan but happens later, or never.
  uint64_t Count(const std::string& place, FaultWhere where);
  void Happens(const PlannedFault& fault);
  uint64_t faults() const;  // that have happened so far

  // Presence.
  struct Visit {
    std::string place;    // on the bus below
    uint64_t number = 0;  // there
  };
  // Where the device of a place is to be found now; nothing: it is away.
  std::optional<std::string> Find(const std::string& place);
  // Somebody opens the device that is to be found at `shown`: what goes wrong with that happens.
  // kDeviceLost if there is none.
  Result<Visit> Open(const std::string& shown);
  // A call reaches the device. Whether it is there, as on that visit.
  bool Reach(const Visit& visit);
  void Unplug(const std::string& place, const PlannedFault& fault);
  // A number for all that has happened to presence so far.
  uint64_t changes();
  // As UsbBus::WaitForChange. Comings and goings of the plan happen at known times; those below are
  // looked at in between.
  bool WaitForChange(const std::function<uint64_t()>& generation, uint64_t seen, Deadline deadline);

 private:
  struct Device {
    std::string shown;  // where it is to be found
    bool away = false;
    uint64_t visits = 0;                                 // changes each time that it goes
    std::optional<std::chrono::milliseconds> absence{};  // each time; nothing: for ever
    std::optional<Deadline> comes_at{};                  // if it is away
    bool leaves_again = false;                           // at the next call
    std::array<uint64_t, kFaultWheres> calls{};          // so far, by kind
  };

  // With the mutex held:
  Device& Update(const std::string& place);
  void Leave(Device* device);
  std::string PlaceOf(const std::string& shown);

  std::optional<Deadline> NextChange();

  const FaultPlan plan_;
  const FaultOptions options_;
  const MovedFunction moved_;
  mutable std::mutex mutex_;  // guards what follows
  uint64_t faults_ = 0;
  std::map<std::string, Device> devices_;  // by place
  uint64_t changes_ = 0;
  int moves_ = 0;
};

}  // namespace atollrt
