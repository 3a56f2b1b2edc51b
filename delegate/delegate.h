// SPDX-License-Identifier: Apache-2.0
//
// DeviceDelegate: runtime's Delegate on a driver::Device. Partitions a graph, compiles each set,
// loads the executables; the executors that it returns submit requests to the device. The device
// is shared by all graphs planned with one delegate. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "driver/device.h"
#include "runtime/node_executor.h"

namespace atollrt {

class DeviceDelegate final : public Delegate {
 public:
  // Why the caller wants a node on the CPU, or "" if the device may have it.
  using Refuse = std::function<std::string(const Graph& graph, int32_t node)>;

  // `refuse` is asked about every node of every graph that is planned, on any thread; empty if the
  // device may have them all.
  explicit DeviceDelegate(std::unique_ptr<Device> device, Refuse refuse = {})
      : device_(std::move(device)), refuse_(std::move(refuse)) {}

  Result<DelegatePlan> Plan(const Graph& graph) override;
  Device& device() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
  const Refuse refuse_;
};

}  // namespace atollrt
