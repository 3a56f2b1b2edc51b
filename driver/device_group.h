// SPDX-License-Identifier: Apache-2.0
//
// DeviceGroup: several devices of one kind as a Device (device.h has the contract). Executables are
// loaded on all of them, or, with a stage, on one; each request goes to the device with the fewest
// requests, among equals to the one that its executable used last, where it is still resident.
// Requests that wait in different threads run at the same time. One whose device is lost for good
// goes to another one.
//
// It is as good as its devices: each should be a RecoveringDevice. Recovered devices get requests
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "driver/device.h"

namespace atollrt {

class DeviceGroup final : public Device {
 public:
  // kInvalidArgument if there is none, or if they differ in family, array or memory: executables
  // are compiled for one kind.
  static Result<std::unique_ptr<Device>> Create(std::vector<std::unique_ptr<Device>> devices);
  // No call may be in progress.
  ~DeviceGroup() override;

  // Of the first device; the name is that of all.
  const DeviceInfo& info() const override { return info_; }
  // The best of them: Ready, Recovering, Fallback, Lost.
  DeviceState state() const override;
  Result<ExecutableId> Load(std::shared_ptr<const AnyExecutable> executable,
                            const LoadOptions& options = {}) override;
  Status Unload(ExecutableId id) override;
  Result<RequestId> Submit(const Request& request) override;
  Status Wait(RequestId id, RequestReport* report) override;
  Status Cancel(RequestId id) override;
  // Of all; the first error, if all fail.
  Status Reset() override;
  DeviceHealth health() const override;  // sums

 private:
  struct Loaded;
  struct Slot;

  explicit DeviceGroup(std::vector<std::unique_ptr<Device>> devices);
  Loaded* FindLoaded(ExecutableId id);
  Slot* FindSlot(RequestId id);
  Status SubmitSomewhere(Slot* slot);

  const std::vector<std::unique_ptr<Device>> devices_;
  DeviceInfo info_;

  mutable std::mutex mutex_;
  std::vector<int> in_progress_;  // requests, of each device
  std::vector<std::unique_ptr<Loaded>> loaded_;
  std::vector<std::unique_ptr<Slot>> slots_;  // recycled
  ExecutableId last_executable_ = 0;
  RequestId last_request_ = 0;
};

}  // namespace atollrt
