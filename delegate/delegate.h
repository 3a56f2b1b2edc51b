// SPDX-License-Identifier: Apache-2.0
//
// DeviceDelegate: runtime's Delegate on a driver::Device. Partitions a graph, compiles each set,
// loads the executables; the executors that it returns submit requests to the device. The device
// is shared by all graphs planned with one delegate. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "driver/device.h"
#include "runtime/node_executor.h"

namespace atollrt {

class DeviceDelegate final : public Delegate {
 public:
  explicit DeviceDelegate(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  // Partitions that came compiled with the model are taken as they are if the device has room for
  // them; otherwise the graph is partitioned and compiled.
  Result<DelegatePlan> Plan(const Graph& graph) override;
  // The graphs of a model, the first of them compiled for the device, as a .tflite file
  // (compiled_model.h). kUnsupported if nothing of it can run there.
  Result<std::vector<uint8_t>> Compile(std::span<const Graph> graphs) const;
  Device& device() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
};

}  // namespace atollrt
