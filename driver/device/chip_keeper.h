// SPDX-License-Identifier: Apache-2.0
//
// ChipKeeper: one chip that is kept running. A run is a loop around Chip::Run: when it fails, the
// chip is reset or opened anew, gets its executables again, and the run is repeated; if the chip
// does not come back before a deadline, the same run completes on a stand-in, with the same bytes.
//
//        opened                 back (Recovering may last its deadline)
//   ───────────> Ready <─────────────────────────────── Recovering <─────────────────┐
//                 │  a run fails                          ^  │  │                   │
//                 └───────────────────────────────────────┘  │  └─ deadline ─> Fallback
//                                                            │                   │
//                               Lost <───────────────────────┘ deadline,         │
//                                 │                            no stand-in       │
//                                 └──────────────────────────────────────────────┘ seen again
//
// A chip without `reopen` is lost for good with the first failure that Chip::Recover does not mend.
// A program that faults, or a run that takes too long, leaves the chip Ready: Recover has reset it.
//
// There is no hidden thread: while the stand-in works, the chip is looked for again whenever
// something was plugged in or out, and now and then without that, in front of a run. It may be
// there, and have been in trouble only when it was opened.
//
// What a run can take at most: attempts_max times its timeout, as often the recovery_timeout and
// what Chip::Recover and Reopen take (seconds each), and the time on the stand-in.
//
// Calls marked (wire) come one at a time, from whoever holds the wire; the others may come from any
// thread at any time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/device/activity.h"
#include "driver/device/chip.h"
#include "driver/device/device_info.h"
#include "runtime/base/clock.h"

namespace atollrt {

// What becomes of the requests of a device that is lost.
enum class OnDeviceLoss {
  kReplay,    // wait for it up to the deadline, send them again; kDeviceLost if it stays away
  kFallback,  // likewise, but then they complete on the stand-in
  kFail,      // kDeviceLost at once; later requests look for the device again
};

class ChipKeeper {
 public:
  struct Options {
    OnDeviceLoss on_loss = OnDeviceLoss::kFallback;
    // Opens the chip again, wherever it is plugged in now; waits for it until `deadline`. nullptr:
    // nobody knows how, and a run is not repeated.
    std::function<Result<std::unique_ptr<Chip>>(Deadline deadline)> reopen = nullptr;
    // Opens the stand-in; called once, when it is first needed. nullptr: there is none.
    std::function<Result<std::unique_ptr<Chip>>()> open_stand_in = nullptr;
    // A number that changes when a device comes or goes. nullptr: one without stand-in that was
    // given up is looked for once in each run.
    std::function<uint64_t()> bus_generation = nullptr;
    // For bringing the chip back, each time that it fails.
    std::chrono::milliseconds recovery_timeout{5000};
    // For finding it again once it was given up, before the run goes elsewhere.
    std::chrono::milliseconds lookup_timeout{1000};
    // A run that another device can take does not wait for the chip: it looks once, and goes there.
    bool leaves_at_once = false;
    // Between looks for a chip that was given up, when nothing is plugged in or out: at first, and
    // at most, as each look in vain doubles it. Such a look waits for nobody.
    std::chrono::milliseconds look_pause_min{5000};
    std::chrono::milliseconds look_pause_max{60000};
    // At one run. What fails that often is not bad luck.
    int attempts_max = 5;
    NowFunction now = Clock::now;
    std::string activity_directory{};  // where to publish what the chip does (activity.h), or ""
  };

  // `chip` is opened.
  ChipKeeper(std::unique_ptr<Chip> chip, Options options);
  // No call may be in progress.
  ~ChipKeeper();

  // What the chip was when it was opened first.
  const DeviceInfo& info() const { return info_; }
  DeviceState state() const;
  DeviceHealth health() const;
  Deadline now() const { return options_.now(); }
  bool can_reopen() const { return options_.reopen != nullptr; }
  // state(), but kReady if the chip was given up and a run would look for it again.
  DeviceState expected_state() const;
  // kDeviceLost if there is no sense in waiting for a run now. `call` is what somebody wants to do.
  Status CheckThere(const char* call) const;
  // Since a run has failed, until whoever called Run has looked after those that waited meanwhile,
  // for longer than they had to expect.
  bool in_trouble() const { return in_trouble_; }
  void EndTrouble() { in_trouble_ = false; }

  // What Load does while there is no chip.
  enum class WhileAway {
    kFail,       // kDeviceLost
    kOnStandIn,  // loads on the stand-in, if there is one; the caller has the wire
    kLater,      // succeeds: the chip gets the executable when it is back, if it can be reopened
  };
  // Errors as Device::Load.
  Status Load(ExecutableId id, std::shared_ptr<const AnyExecutable> executable,
              const LoadOptions& options, WhileAway while_away);
  // `id` is loaded, and no run uses it.
  void Unload(ExecutableId id);
  // Whether a run of `id` would have nothing to upload.
  bool IsResident(ExecutableId id) const;

  // As Chip's, for this chip and all that come after it. While it is away, memory is kept for
  // later.
  Status RegisterMemory(const HostMemory& memory);
  void UnregisterMemory(std::span<uint8_t> memory);

  struct Job {
    ExecutableId executable = 0;
    RequestId request = 0;
    std::span<const std::span<const uint8_t>> inputs;
    std::span<const std::span<uint8_t>> outputs;
    std::chrono::milliseconds timeout{};  // of each attempt but the first,
    Deadline deadline{};                  // which has this
    int32_t priority = 0;
    const std::atomic<bool>* cancelled = nullptr;
    // Another chip is ready: while this one is away, kDeviceLost rather than the stand-in.
    bool may_go_elsewhere = false;
  };
  // As Chip's, of the chip as it is now.
  size_t jobs_in_flight_max() const;
  // Errors as Device::Wait. `report` is filled after errors, too. `next`, fewer than
  // kJobsInFlightMax, are the jobs whose Runs come next, as long as none fails: they may have begun
  // when this one has succeeded elsewhere than on the stand-in; otherwise none has. (wire)
  Status Run(const Job& job, std::span<const Job> next, RequestReport* report);
  // If the chip was given up: looks for it. (wire)
  void Look();
  // If it is there: ends what is under way, for which Run is called again, and resets it. Why it is
  // away after that, if it is. (wire)
  Status Reset();

 private:
  // A chip with who looks at it.
  struct Published {
    std::unique_ptr<Chip> chip;  // nullptr: there is none
    std::unique_ptr<ActivityPublisher> activity;
  };
  struct Kept;
  using Lock = std::unique_lock<std::mutex>;

  // With the mutex held:
  void MoveTo(DeviceState state);
  void WaitUntilRecovered(Lock& lock);
  bool MayBeBack() const;
  Status Away(const char* call) const;

  Kept* FindKept(ExecutableId id);
  void Count(uint64_t DeviceHealth::*event);
  // With the wire held and the mutex not:
  Status RunOn(const Published& where, const Chip::Job& job, std::span<const Chip::Job> ahead,
               RequestReport* report);
  Status PrepareOnStandIn(Kept* kept);
  Status RunOnStandIn(Kept* kept, const Job& job, RequestReport* report);
  bool SeenAgain(int looks) const;
  void LookAgain();
  void BringBack(const Status& reason, bool may_wait);
  void LookOnBus(Deadline deadline, bool was_ready);
  struct Reopened;
  Result<Reopened> Reopen(Deadline deadline) const;

  const Options options_;
  const DeviceInfo info_;
  std::atomic<bool> in_trouble_{false};

  // Guards what follows, and is never held during a transfer. What only the holder of the wire
  // changes, it reads without.
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a state was left
  DeviceState state_ = DeviceState::kReady;
  Published chip_;      // of none in Fallback and Lost, unless it cannot be opened again
  Published stand_in_;  // once it was needed
  std::map<ExecutableId, Kept> kept_;
  int preparing_ = 0;  // calls of Load that use the chip
  std::vector<HostMemory> registered_;
  Status loss_;                   // why there is no chip
  uint64_t generation_seen_ = 0;  // of the bus, when the chip was last looked for
  std::chrono::milliseconds look_pause_{0};
  Deadline next_look_{};  // if nothing is plugged in or out before
  DeviceHealth health_;
};

}  // namespace atollrt
