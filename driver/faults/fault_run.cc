// SPDX-License-Identifier: Apache-2.0
#include "driver/faults/fault_run.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/log.h"

namespace atollrt {
namespace {

using std::chrono::milliseconds;

// With a clock that is not the real one, the device below gets so much real time for a call.
constexpr milliseconds kInnerPatience{20};

}  // namespace

void FaultRun::SleepUntil(Deadline time) const {
  if (options_.sleep_until != nullptr) {
    options_.sleep_until(time);
  } else {
    std::this_thread::sleep_until(time);
  }
}

Deadline FaultRun::InnerDeadline(Deadline deadline) const {
  if (real_time()) return deadline;
  const auto remaining = std::max(deadline - now(), Clock::duration::zero());
  return Clock::now() + std::min<Clock::duration>(remaining, kInnerPatience);
}

Status FaultRun::Lose(Deadline deadline) const {
  SleepUntil(std::min(deadline, now() + options_.patience));
  return Timeout("the transfer was lost on the way");
}

Status FaultRun::Delay(const PlannedFault& fault, Deadline deadline) const {
  const Deadline until = now() + fault.time;
  SleepUntil(std::min(until, deadline));
  return until <= deadline ? Status() : Timeout("the answer came too late");
}

// The plan.

std::optional<PlannedFault> FaultRun::Next(const std::string& place, FaultWhere where,
                                           size_t size) {
  const std::optional<PlannedFault> fault = plan_.Find(where, Count(place, where), size);
  if (fault.has_value()) Happens(*fault);
  return fault;
}

uint64_t FaultRun::Count(const std::string& place, FaultWhere where) {
  const std::lock_guard lock(mutex_);
  return ++Update(place).calls[static_cast<size_t>(where)];
}

void FaultRun::Happens(const PlannedFault& fault) {
  Log(LogSeverity::kInfo, "fault: %s", Describe(fault).c_str());
  const std::lock_guard lock(mutex_);
  ++faults_;
}

uint64_t FaultRun::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

// Presence.

std::optional<std::string> FaultRun::Find(const std::string& place) {
  const std::lock_guard lock(mutex_);
  const Device& device = Update(place);
  if (device.away) return {};
  return device.shown;
}

Result<FaultRun::Visit> FaultRun::Open(const std::string& shown) {
  std::string place;
  {
    const std::lock_guard lock(mutex_);
    place = PlaceOf(shown);
  }
  if (Find(place) == shown) {
    if (const auto fault = Next(place, FaultWhere::kOpen, 0)) {
      if (fault->what == FaultWhat::kDelay) SleepUntil(now() + fault->time);
      if (fault->what == FaultWhat::kUnplug) Unplug(place, *fault);
    }
  }
  const std::lock_guard lock(mutex_);
  const Device& device = Update(place);
  if (device.away || device.shown != shown) {
    return DeviceLost("the device at %s is gone", shown.c_str());
  }
  return Visit{.place = std::move(place), .number = device.visits};
}

bool FaultRun::Reach(const Visit& visit) {
  const std::lock_guard lock(mutex_);
  Device& device = Update(visit.place);
  const auto is_there = [&] { return !device.away && device.visits == visit.number; };
  if (is_there() && std::exchange(device.leaves_again, false)) Leave(&device);
  return is_there();
}

void FaultRun::Unplug(const std::string& place, const PlannedFault& fault) {
  const std::lock_guard lock(mutex_);
  Device& device = Update(place);
  if (device.away) return;
  device.leaves_again = fault.replug == Replug::kTwice;
  device.absence = fault.replug == Replug::kNever ? std::nullopt : std::optional(fault.time);
  if (fault.replug == Replug::kMoved) device.shown = moved_(place, ++moves_);
  Leave(&device);
}

uint64_t FaultRun::changes() {
  const std::lock_guard lock(mutex_);
  for (auto& [place, device] : devices_) Update(place);
  return changes_;
}

bool FaultRun::WaitForChange(const std::function<uint64_t()>& generation, uint64_t seen,
                             Deadline deadline) {
  constexpr milliseconds kLook{100};
  while (generation() == seen) {
    if (now() >= deadline) return false;
    Deadline until = deadline;
    if (const auto next = NextChange()) until = std::min(until, *next);
    if (real_time()) until = std::min(until, now() + kLook);
    SleepUntil(until);
  }
  return true;
}

// When something comes back next.
std::optional<Deadline> FaultRun::NextChange() {
  const std::lock_guard lock(mutex_);
  std::optional<Deadline> next;
  for (const auto& [place, device] : devices_) {
    if (device.comes_at.has_value() && (!next.has_value() || *device.comes_at < *next)) {
      next = device.comes_at;
    }
  }
  return next;
}

// The device of a place as it is now.
FaultRun::Device& FaultRun::Update(const std::string& place) {
  const auto [found, is_new] = devices_.try_emplace(place);
  Device& device = found->second;
  if (is_new) device.shown = place;
  if (device.comes_at.has_value() && *device.comes_at <= now()) {
    device.comes_at.reset();
    device.away = false;
    ++changes_;
  }
  return device;
}

void FaultRun::Leave(Device* device) {
  device->away = true;
  ++device->visits;
  ++changes_;
  if (device->absence.has_value()) device->comes_at = now() + *device->absence;
}

std::string FaultRun::PlaceOf(const std::string& shown) {
  for (const auto& [place, device] : devices_) {
    if (device.shown == shown) return place;
  }
  return shown;
}

}  // namespace atollrt
