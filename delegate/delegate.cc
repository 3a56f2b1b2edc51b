// SPDX-License-Identifier: Apache-2.0
#include "delegate/delegate.h"

#include <atomic>

#include "delegate/compiler.h"
#include "delegate/partitioner.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

// One partition on the device.
class PartitionExecutor final : public NodeExecutor {
 public:
  PartitionExecutor(Device* device, ExecutableId executable, const Executable& layout)
      : device_(device), executable_(executable) {
    request_.executable = executable;
    request_.inputs.resize(layout.inputs.size());
    request_.outputs.resize(layout.outputs.size());
    for (const Layer& layer : layout.inputs) input_bytes_.push_back(layer.bytes);
    for (const Layer& layer : layout.outputs) output_bytes_.push_back(layer.bytes);
  }

  ~PartitionExecutor() override {
    if (const Status status = device_->Unload(executable_); !status.ok()) {
      Log(LogSeverity::kWarning, "unload: %s", status.message().c_str());
    }
  }

  Status Invoke(const NodeIo& io) override {
    for (size_t i = 0; i < input_bytes_.size(); ++i) {
      request_.inputs[i] = {io.inputs[i], input_bytes_[i]};
    }
    for (size_t i = 0; i < output_bytes_.size(); ++i) {
      request_.outputs[i] = {io.outputs[i], output_bytes_[i]};
    }
    ATOLL_ASSIGN_OR_RETURN(const RequestId id, device_->Submit(request_));
    running_ = id;
    RequestReport report;
    const Status status = device_->Wait(id, &report);
    running_ = 0;
    ATOLL_RETURN_IF_ERROR(status);
    const uint64_t bytes = report.bytes_to_device + report.bytes_from_device;
    *io.usage = {.cycles = report.device_cycles,
                 .bytes_to_device = report.bytes_to_device,
                 .bytes_from_device = report.bytes_from_device,
                 .seconds = EstimateSeconds(device_->info(), report.device_cycles, bytes)};
    return Status();
  }

  void Cancel() override {
    // The request may have completed in between; then there is nothing to cancel.
    if (const RequestId id = running_; id != 0) (void)device_->Cancel(id).ok();
  }

 private:
  Device* const device_;
  const ExecutableId executable_;
  Request request_;  // reused, so that Invoke allocates nothing
  std::vector<size_t> input_bytes_;
  std::vector<size_t> output_bytes_;
  std::atomic<RequestId> running_{0};
};

PartitionReport MakeReport(const Executable& executable, const DeviceInfo& device,
                           std::string note) {
  PartitionReport report;
  report.instruction_count = static_cast<int32_t>(executable.inference_program.size());
  report.resident_parameter_bytes = static_cast<int64_t>(executable.resident_parameters.size());
  report.streamed_parameter_bytes = static_cast<int64_t>(executable.streamed_parameters.size());
  report.activation_bytes = static_cast<int64_t>(executable.activation_bytes);
  for (const Layer& layer : executable.inputs) {
    report.input_bytes += static_cast<int64_t>(layer.bytes);
  }
  for (const Layer& layer : executable.outputs) {
    report.output_bytes += static_cast<int64_t>(layer.bytes);
  }
  report.estimated_cycles = static_cast<int64_t>(executable.estimated_cycles);
  report.estimated_seconds =
      EstimateSeconds(device, executable.estimated_cycles,
                      static_cast<uint64_t>(report.input_bytes + report.output_bytes +
                                            report.streamed_parameter_bytes));
  report.note = std::move(note);
  return report;
}

struct CompiledPartition {
  std::vector<int32_t> nodes;
  SetBoundary boundary;
  CompiledSet compiled;
};

// Partitions and compiles until every set fits: a set that is too large for the chip loses the
// node at its peak to the CPU, which splits it, and all sets are formed anew. `refused` holds what
// must not be in any set, as for PartitionGraph.
Result<std::vector<CompiledPartition>> CompileGraph(const Graph& graph, const DeviceInfo& device,
                                                    std::vector<std::string> refused,
                                                    std::vector<std::string>* refusals) {
  const PartitionLimits limits{.memory_bytes = static_cast<int64_t>(device.memory_bytes)};
  for (;;) {
    NodeSets sets = PartitionGraph(graph, limits, refused);
    std::vector<CompiledPartition> partitions;
    bool all_fit = true;
    for (std::vector<int32_t>& set : sets.sets) {
      SetBoundary boundary = FindBoundary(graph, set);
      CompileFailure failure;
      Result<CompiledSet> compiled =
          CompileSet(graph, set, boundary.inputs, boundary.outputs, device, &failure);
      if (!compiled.ok()) {
        if (failure.node < 0) return compiled.status();
        refused[failure.node] = compiled.status().message();
        all_fit = false;
        break;
      }
      partitions.push_back({std::move(set), std::move(boundary), *std::move(compiled)});
    }
    if (all_fit) {
      *refusals = std::move(sets.reasons);
      return partitions;
    }
  }
}

}  // namespace

Result<DelegatePlan> DeviceDelegate::Plan(const Graph& graph) {
  std::vector<std::string> refused(graph.nodes.size());
  for (size_t i = 0; refuse_ != nullptr && i < refused.size(); ++i) {
    refused[i] = refuse_(graph, static_cast<int32_t>(i));
  }
  DelegatePlan plan;
  ATOLL_ASSIGN_OR_RETURN(std::vector<CompiledPartition> partitions,
                         CompileGraph(graph, device_->info(), std::move(refused), &plan.refusals));
  for (CompiledPartition& part : partitions) {
    auto executable = std::make_shared<const Executable>(std::move(part.compiled.executable));
    ATOLL_ASSIGN_OR_RETURN(const ExecutableId id, device_->Load(executable));
    Partition partition;
    partition.nodes = std::move(part.nodes);
    partition.inputs = std::move(part.boundary.inputs);
    partition.outputs = std::move(part.boundary.outputs);
    partition.report = MakeReport(*executable, device_->info(), std::move(part.compiled.note));
    partition.executor = std::make_unique<PartitionExecutor>(device_.get(), id, *executable);
    plan.partitions.push_back(std::move(partition));
  }
  return plan;
}

}  // namespace atollrt
