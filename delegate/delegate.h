// SPDX-License-Identifier: Apache-2.0
//
// DeviceDelegate: runtime's Delegate on the driver's Device. Partitions a graph, compiles each set,
// loads the executables; the executors that it returns submit requests to the device. On a Coral,
// which only Google's compiler knows, the partitions are the operators that it left in the graph.
// The device is shared by all graphs planned with one delegate, and what was compiled for a graph
// by all plans of it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/device/device.h"
#include "driver/isa/executable.h"
#include "runtime/model.h"
#include "runtime/plan/delegate.h"

namespace atollrt {

// An executable and, for people, the names of its nodes in the order of the partition: "node 4
// (CONV_2D) 'conv1/out'".
struct DescribedExecutable {
  Executable executable;
  std::vector<std::string> node_names;  // empty if that is not known
};

// What a file holds: a bare executable, or the partitions of a compiled model in their order, none
// of an ordinary one. Takes hostile bytes; errors as ReadExecutable and the loader of models.
Result<std::vector<DescribedExecutable>> ReadExecutables(std::span<const uint8_t> bytes);

// The same without a device: a model, compiled for this CPU.
Result<std::vector<uint8_t>> CompileForCpu(const Model& model);

class DeviceDelegate final : public Delegate {
 public:
  struct Options {
    int32_t max_partition_nodes = 0;  // in a partition; 0: any number
    // Graphs are cut into so many stages of about equal time, for a device of several chips, one
    // after the other; several inferences in progress then keep all of them busy.
    int32_t stages = 1;
  };
  explicit DeviceDelegate(std::unique_ptr<Device> device) : DeviceDelegate(std::move(device), {}) {}
  DeviceDelegate(std::unique_ptr<Device> device, const Options& options)
      : device_(std::move(device)), options_(options) {}

  bool is_coral() const override { return device_->info().family == DeviceFamily::kCoral; }
  // Partitions that came compiled with the model are taken as they are if the device has room for
  // them and their size is not limited; otherwise the graph is partitioned and compiled. As long as
  // a plan of the same graph and residency set lives, its executables serve the next one, too.
  Result<DelegatePlan> Plan(const Graph& graph, const PlanOptions& options) override;
  bool wants_shared_memory() const override { return device_->info().is_elsewhere; }
  Status RegisterMemory(const HostMemory& memory) override {
    return device_->RegisterMemory(memory);
  }
  void UnregisterMemory(std::span<uint8_t> memory) override { device_->UnregisterMemory(memory); }
  // The graphs of a model, the first of them compiled for the device and this CPU, as a .tflite
  // file (compiled_model.h). kUnsupported if nothing of it can run there, or for a Coral.
  Result<std::vector<uint8_t>> Compile(const Model& model) const;
  // The executables of a graph, compiled for the device, whatever came compiled with the model.
  // kUnsupported for a Coral.
  Result<std::vector<DescribedExecutable>> CompileExecutables(const Graph& graph) const;
  Device& device() { return *device_; }

 private:
  struct LoadedPlan;
  // What was loaded for a graph; its mutex is held while it is compiled.
  struct Shelf {
    std::mutex mutex;
    std::weak_ptr<const LoadedPlan> plan;
  };
  std::shared_ptr<Shelf> FindShelf(const Graph& graph, uint32_t residency_set);
  Result<std::shared_ptr<const LoadedPlan>> Load(const Graph& graph, uint32_t residency_set);

  const std::unique_ptr<Device> device_;
  const Options options_;
  std::atomic<uint32_t> graphs_{0};  // loaded so far, each a residency set if nobody says more
  std::mutex shelves_mutex_;
  // By the address of a graph, which outlives its plans, and the residency set asked for.
  std::map<std::pair<const Graph*, uint32_t>, std::shared_ptr<Shelf>> shelves_;
};

}  // namespace atollrt
