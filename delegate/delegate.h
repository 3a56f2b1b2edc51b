// SPDX-License-Identifier: Apache-2.0
//
// DeviceDelegate: runtime's Delegate on a driver::Device. Partitions a graph, compiles each set,
// loads the executables; the executors that it returns submit requests to the device. The device
// is shared by all graphs planned with one delegate. Thread-safe.
#pragma once

#include <memory>

#include "driver/device.h"
#include "runtime/node_executor.h"

namespace atollrt {

class DeviceDelegate final : public Delegate {
 public:
  explicit DeviceDelegate(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  Result<DelegatePlan> Plan(const Graph& graph) override;
  Device& device() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
};

}  // namespace atollrt
