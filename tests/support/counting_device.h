// SPDX-License-Identifier: Apache-2.0
//
// CountingDevice: counts what a device is asked to do.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "driver/device.h"

namespace atollrt {

class CountingDevice final : public Device {
 public:
  CountingDevice(std::unique_ptr<Device> inner, std::atomic<int>* submitted)
      : inner_(std::move(inner)), submitted_(submitted) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  DeviceState state() const override { return inner_->state(); }
  Result<ExecutableId> Load(std::shared_ptr<const AnyExecutable> executable,
                            const LoadOptions& options) override {
    return inner_->Load(std::move(executable), options);
  }
  Status Unload(ExecutableId id) override { return inner_->Unload(id); }
  Result<RequestId> Submit(const Request& request) override {
    ++*submitted_;
    return inner_->Submit(request);
  }
  Status Wait(RequestId id, RequestReport* report) override { return inner_->Wait(id, report); }
  Status Cancel(RequestId id) override { return inner_->Cancel(id); }
  Status Reset() override { return inner_->Reset(); }
  DeviceHealth health() const override { return inner_->health(); }

 private:
  const std::unique_ptr<Device> inner_;
  std::atomic<int>* const submitted_;
};

}  // namespace atollrt
