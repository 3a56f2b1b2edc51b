// SPDX-License-Identifier: Apache-2.0
//
// RecoveringDevice: a Device that does not give up (device.h has the contract and the states). When
// a request fails because the device stalled, hung, was reset or pulled, it resets the device or
// opens it anew, loads the executables again and replays the request; when the device does not come
// back before a deadline, the same request completes on a stand-in, with the same bytes. Each
// request completes exactly once, whatever happens in between.
//
// The thread that finds the device in trouble brings it back while the others wait; there is no
// hidden thread. While the stand-in works, the device is looked for again whenever something was
// plugged in or out, and now and then without that: it may be there, and have been in trouble only
// when it was opened.
//
// What a request can take at most: attempts_max times its timeout, as often the recovery_timeout,
// and the time on the stand-in.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "driver/device.h"
#include "driver/protocol_session.h"

namespace atollrt {

// What becomes of the requests of a device that is lost.
enum class OnDeviceLoss {
  kReplay,    // wait for it up to the deadline, send them again; kDeviceLost if it stays away
  kFallback,  // likewise, but then they complete on the stand-in
  kFail,      // kDeviceLost at once; later requests look for the device again
};

class RecoveringDevice final : public Device {
 public:
  struct Options {
    OnDeviceLoss on_loss = OnDeviceLoss::kFallback;
    // Opens the device again, wherever it is plugged in now; waits for it until `deadline`.
    std::function<Result<std::unique_ptr<Device>>(Deadline deadline)> reopen;
    // Opens the stand-in; called once, when it is first needed. nullptr: there is none.
    std::function<Result<std::unique_ptr<Device>>()> open_fallback;
    // A number that changes when a device comes or goes. nullptr: one without stand-in that was
    // given up is looked for once in each request.
    std::function<uint64_t()> bus_generation;
    // For bringing the device back, each time that it fails.
    std::chrono::milliseconds recovery_timeout{5000};
    // For finding it again once it was given up, before the request goes elsewhere.
    std::chrono::milliseconds lookup_timeout{1000};
    // Between looks for a device that was given up, when nothing is plugged in or out: at first,
    // and at most, as each look in vain doubles it. Such a look waits for nobody.
    std::chrono::milliseconds look_pause_min{5000};
    std::chrono::milliseconds look_pause_max{60000};
    // Of one request on the device. What fails that often is not bad luck.
    int attempts_max = 5;
    NowFunction now = Clock::now;
  };

  // `device` is Ready.
  RecoveringDevice(std::unique_ptr<Device> device, Options options);
  // No call may be in progress.
  ~RecoveringDevice() override;

  const DeviceInfo& info() const override { return info_; }
  DeviceState state() const override;
  Result<ExecutableId> Load(std::shared_ptr<const AnyExecutable> executable,
                            const LoadOptions& options = {}) override;
  Status Unload(ExecutableId id) override;
  // The timeout of a request is that of one attempt.
  Result<RequestId> Submit(const Request& request) override;
  Status Wait(RequestId id, RequestReport* report) override;
  Status Cancel(RequestId id) override;
  Status Reset() override;
  DeviceHealth health() const override;

 private:
  struct Loaded;
  struct Slot;
  // A device with a number, so that a request knows whether it was sent to this one.
  struct Numbered {
    std::shared_ptr<Device> device;
    uint64_t number = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  // All with the mutex held; those that take a Lock give it up in between.
  void MoveTo(DeviceState state);
  Loaded* FindLoaded(ExecutableId id);
  Slot* FindSlot(RequestId id);
  Slot* TakeFreeSlot();
  Status SubmitTo(Device& device, ExecutableId executable, Slot* slot, RequestId* id);
  Status RunOnDevice(Lock& lock, Slot* slot);
  Status RunOnFallback(Lock& lock, Slot* slot);
  // What to do with a request that failed on the device: nothing if it shall be sent again, else
  // how it ends.
  std::optional<Status> AfterFailure(Lock& lock, Slot* slot, Status status);
  Status LoadOnFallback(Loaded* loaded);
  // Whether to look for a device that was given up; this call has done so `looks` times.
  bool SeenAgain(int looks);
  // Looks for a device that was given up.
  void LookAgain(Lock& lock);
  void WaitUntilRecovered(Lock& lock);
  // Brings the device back to Ready, or goes to Fallback or Lost. A device that is Ready by itself
  // is taken as it is, unless `reset`.
  void Recover(Lock& lock, std::chrono::milliseconds timeout, bool reset);
  Result<std::unique_ptr<Device>> Reopen(Deadline deadline, std::vector<ExecutableId>* ids) const;

  const Options options_;
  const DeviceInfo info_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a state was left, a request completed, a user left
  DeviceState state_ = DeviceState::kReady;
  Numbered current_;  // device: nullptr unless Ready
  Status loss_;       // why there is none
  std::unique_ptr<Device> fallback_;
  uint64_t generation_seen_ = 0;  // of the bus, when the device was last looked for
  std::chrono::milliseconds look_pause_{0};
  Deadline next_look_{};     // if nothing is plugged in or out before
  uint64_t recoveries_ = 0;  // begun so far
  int users_ = 0;            // threads inside a call of current_.device
  DeviceHealth health_;
  std::vector<std::unique_ptr<Loaded>> loaded_;
  std::vector<std::unique_ptr<Slot>> slots_;  // recycled
  ExecutableId last_executable_ = 0;
  RequestId last_request_ = 0;
};

}  // namespace atollrt
