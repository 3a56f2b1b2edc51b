// SPDX-License-Identifier: Apache-2.0
//
// UsbDevice: a chip on USB as a Device (device.h has the contract): the queue of requests. What it
// takes to talk to the chip is the chip's affair (chip.h).
//
// The waiter drives the wire: a thread in Wait that finds nobody else talking to the device takes
// the wire, runs the next request from upload to completion event, and gives the wire back, until
// its own request has completed. The mutex guards the lists and is never held during a transfer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/activity.h"
#include "driver/chip.h"
#include "driver/device.h"

namespace atollrt {

class UsbDevice : public Device {
 public:
  struct Options {
    std::string name = "usb";          // DeviceInfo::name, of an Atoll-1; chips have theirs
    std::string description = {};      // DeviceInfo::description, likewise
    std::string note = {};             // DeviceInfo::note, likewise
    bool emulated = false;             // DeviceInfo::emulated, likewise
    double host_seconds = 0.3e-3;      // DeviceInfo::host_seconds, likewise
    NowFunction now = Clock::now;      // for deadlines; tests bring their own
    std::string activity_directory{};  // where to publish what the device does (activity.h), or ""
    // What a request gets at least, whatever it asks for: more than nothing for a device that is
    // slower than any hardware.
    std::chrono::milliseconds request_timeout_min{0};
  };

  // An opened chip.
  UsbDevice(std::unique_ptr<Chip> chip, Options options);
  // An Atoll-1: identifies and resets it. kUnsupported if it is none of this ISA version, or the
  // transport's error.
  static Result<std::unique_ptr<Device>> Open(std::unique_ptr<UsbTransport> transport,
                                              Options options);

  // No call may be in progress. Requests that nobody waited for are forgotten.
  ~UsbDevice() override;

  const DeviceInfo& info() const override { return chip_->info(); }
  DeviceState state() const override;
  Result<ExecutableId> Load(std::shared_ptr<const AnyExecutable> executable,
                            const LoadOptions& options = {}) override;
  Status Unload(ExecutableId id) override;
  Result<RequestId> Submit(const Request& request) override;
  Status Wait(RequestId id, RequestReport* report) override;
  Status Cancel(RequestId id) override;
  Status Reset() override;

 private:
  struct Loaded;
  struct Slot;
  struct Outcome;
  using Lock = std::unique_lock<std::mutex>;

  // With the mutex held:
  Status RequireReady(const char* call) const;
  Loaded* FindLoaded(ExecutableId id);
  Slot* FindSlot(RequestId id);
  Slot* TakeFreeSlot();
  void Complete(Slot* slot, Status status);
  void Lose(const Status& reason);
  Slot* TakeNext();
  void RunNext(Lock& lock);
  void PublishEnd(const Slot& slot, bool failed, int64_t start_ns);

  // With the wire held and the mutex not:
  Outcome Execute(Slot* slot);
  bool Recover(const Status& reason);

  const std::unique_ptr<Chip> chip_;
  const std::string name_;
  const NowFunction now_;
  const std::chrono::milliseconds request_timeout_min_;
  const std::unique_ptr<ActivityPublisher> activity_;  // nullptr: nothing is published

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a request completed or the wire became free
  DeviceState state_ = DeviceState::kReady;
  bool wire_held_ = false;
  bool resetting_ = false;  // Reset has the wire or is the next to get it
  std::map<ExecutableId, std::unique_ptr<Loaded>> loaded_;
  std::vector<std::unique_ptr<Slot>> slots_;  // recycled, never freed before the device
  std::vector<Slot*> queue_;                  // oldest first
  uint64_t turns_ = 0;                        // requests taken off the queue so far
  int deferrals_ = 0;                         // in a row
  ExecutableId last_executable_ = 0;
  RequestId last_request_ = 0;
};

}  // namespace atollrt
