// SPDX-License-Identifier: Apache-2.0
#include "delegate/delegate.h"

#include <algorithm>
#include <atomic>

#include "delegate/compiled_model.h"
#include "delegate/compiler.h"
#include "delegate/coral_partition.h"
#include "delegate/partitioner.h"
#include "delegate/program_trace.h"
#include "delegate/residency_plan.h"
#include "driver/isa/timing.h"
#include "runtime/base/log.h"
#include "runtime/base/monotonic.h"
#include "runtime/model.h"
#include "runtime/plan/partition_report.h"

namespace atollrt {
namespace {

double CyclesToSeconds(uint64_t cycles, const DeviceInfo& device) {
  return static_cast<double>(cycles) / static_cast<double>(device.clock_hz);
}

void TraceHost(const Trace& trace, TraceKind kind, const char* name, int64_t start_ns,
               int64_t end_ns) {
  trace({.kind = kind,
         .name = name,
         .host = {.start_ns = start_ns, .duration_ns = end_ns - start_ns}});
}

// A partition that the device knows.
struct LoadedPartition {
  LoadedPartition(Device* on, ExecutableId number, std::shared_ptr<const AnyExecutable> what)
      : device(on), id(number), executable(std::move(what)) {}
  ~LoadedPartition() {
    if (const Status status = device->Unload(id); !status.ok()) {
      Log(LogSeverity::kWarning, "unload: %s", status.message().c_str());
    }
  }
  LoadedPartition(const LoadedPartition&) = delete;
  LoadedPartition& operator=(const LoadedPartition&) = delete;

  Device* const device;
  const ExecutableId id;
  const std::shared_ptr<const AnyExecutable> executable;
  std::vector<int32_t> nodes;  // of the graph
  SetBoundary boundary;
  std::shared_ptr<const PartitionReport> report;
};

// One partition on the device. Its state lives with the host: it goes to the device with every
// request and comes back changed. Until the request has succeeded the new state is in scratch, so
// that a device that fails leaves the old one as it was.
class PartitionExecutor final : public NodeExecutor {
 public:
  PartitionExecutor(std::shared_ptr<const LoadedPartition> loaded, int32_t priority)
      : loaded_(std::move(loaded)), device_(loaded_->device), executable_(*loaded_->executable) {
    request_.executable = loaded_->id;
    request_.priority = priority;
    request_.inputs.resize(executable_.inputs.size());
    request_.outputs.resize(executable_.outputs.size());
    const SetBoundary& boundary = loaded_->boundary;
    for (const int32_t tensor : boundary.state) {
      const auto input = std::find(boundary.inputs.begin(), boundary.inputs.end(), tensor);
      state_inputs_.push_back(static_cast<size_t>(input - boundary.inputs.begin()));
      state_bytes_ += executable_.inputs[state_inputs_.back()].bytes;
    }
  }

  size_t ScratchBytes(int) const override { return state_bytes_; }

  Status Invoke(const NodeIo& io) override {
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      request_.inputs[i] = {io.inputs[i], executable_.inputs[i].bytes};
    }
    uint8_t* new_state = io.scratch;
    for (size_t i = 0; i < request_.outputs.size(); ++i) {
      const bool is_state = i >= io.outputs.size();
      const uint64_t bytes = executable_.outputs[i].bytes;
      request_.outputs[i] = {is_state ? new_state : io.outputs[i], bytes};
      if (is_state) new_state += bytes;
    }
    const int64_t submit_ns = io.trace != nullptr ? MonotonicNs() : 0;
    ATOLL_ASSIGN_OR_RETURN(const RequestId id, device_->Submit(request_));
    const int64_t wait_ns = io.trace != nullptr ? MonotonicNs() : 0;
    running_ = id;
    RequestReport report;
    const Status status = device_->Wait(id, &report);
    running_ = 0;
    const int64_t done_ns = io.trace != nullptr ? MonotonicNs() : 0;
    ATOLL_RETURN_IF_ERROR(status);
    for (size_t i = 0; i < state_inputs_.size(); ++i) {
      const std::span<const uint8_t> changed = request_.outputs[io.outputs.size() + i];
      std::copy(changed.begin(), changed.end(), io.state[state_inputs_[i]]);
    }
    *io.cost = report;
    io.cost->device_seconds =
        device_->info().host_seconds + CyclesToSeconds(report.device_cycles, device_->info());
    if (io.trace != nullptr) {
      TraceHost(*io.trace, TraceKind::kSubmit, "submit", submit_ns, wait_ns);
      TraceHost(*io.trace, TraceKind::kWait, "wait", wait_ns, done_ns);
      if (executable_.family == DeviceFamily::kAtoll1) {
        TraceProgram(static_cast<const Executable&>(executable_), loaded_->nodes, device_->info(),
                     *io.trace);
      }
    }
    return Status();
  }

  void Cancel() override {
    // The request may have completed in between; then there is nothing to cancel.
    if (const RequestId id = running_; id != 0) (void)device_->Cancel(id).ok();
  }

 private:
  const std::shared_ptr<const LoadedPartition> loaded_;  // shared by the plans of a graph
  Device* const device_;
  const AnyExecutable& executable_;
  Request request_;                   // reused, so that Invoke allocates nothing
  std::vector<size_t> state_inputs_;  // which of the inputs
  size_t state_bytes_ = 0;
  std::atomic<RequestId> running_{0};
};

PartitionReport MakeReport(const Executable& executable, const DeviceInfo& device,
                           CompiledSet compiled) {
  PartitionReport report;
  report.instruction_count = static_cast<int32_t>(executable.inference_program.size());
  report.resident_parameter_bytes = executable.resident_parameters.size();
  report.streamed_parameter_bytes = executable.streamed_parameters.size();
  report.activation_bytes = executable.activation_bytes;
  report.input_bytes = TotalBytes(executable.inputs);
  report.output_bytes = TotalBytes(executable.outputs);
  // Those that the executable states are of the device that it was compiled for.
  const ScheduleSummary times =
      SummarizeProgram(executable.inference_program, ScheduleOptionsOf(device));
  report.estimated_cycles = times.total;
  report.latency = {.total = device.host_seconds + CyclesToSeconds(times.total, device),
                    .host = device.host_seconds,
                    .link_out = CyclesToSeconds(times.link_out, device),
                    .parameters = CyclesToSeconds(times.parameters, device),
                    .array = CyclesToSeconds(times.array, device),
                    .vector = CyclesToSeconds(times.vector, device),
                    .dma = CyclesToSeconds(times.dma, device),
                    .link_in = CyclesToSeconds(times.link_in, device)};
  const Upload upload = UploadOf(executable, device);
  report.program_bytes = FootprintOf(executable).program_bytes;
  report.upload_bytes = upload.bytes;
  report.upload_seconds = upload.seconds;
  report.memory = std::move(compiled.memory);
  report.note = std::move(compiled.note);
  return report;
}

// The partitions that came with the model.
Result<std::vector<CompiledPartition>> ReadCompiledPartitions(const Graph& graph,
                                                              std::vector<std::string>* refusals) {
  std::vector<CompiledPartition> partitions(graph.compiled.size());
  refusals->resize(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int32_t compiled = graph.nodes[i].compiled;
    if (compiled >= 0) {
      partitions[compiled].nodes.push_back(static_cast<int32_t>(i));
    } else {
      (*refusals)[i] = "the compiled model leaves it to the CPU";
    }
  }
  BoundaryFinder boundaries(graph);
  for (size_t i = 0; i < partitions.size(); ++i) {
    CompiledPartition& partition = partitions[i];
    partition.boundary = boundaries.Find(partition.nodes);
    ATOLL_ASSIGN_OR_RETURN(partition.compiled.executable,
                           ReadCompiledPartition(graph, i, partition.nodes, partition.boundary));
  }
  return partitions;
}

// For each node its stage, 0 or more: stages of about equal time, in the order of the nodes.
// `whole` are the partitions of the graph if it is not cut.
std::vector<int32_t> CutIntoStages(size_t nodes, const std::vector<CompiledPartition>& whole,
                                   const DeviceInfo& device, int32_t stages) {
  const ArraySize array{device.array_rows, device.array_columns};
  std::vector<uint64_t> cycles(nodes);
  uint64_t total = 0;
  for (const CompiledPartition& partition : whole) {
    const Executable& executable = partition.compiled.executable;
    for (size_t i = 0; i < executable.inference_nodes.size(); ++i) {
      const int32_t node = executable.inference_nodes[i];
      if (node < 0) continue;
      const uint64_t one = ExecutionCycles(executable.inference_program[i], array);
      cycles[partition.nodes[node]] += one;
      total += one;
    }
  }
  std::vector<int32_t> stage_of(nodes);
  uint64_t before = 0;
  for (size_t i = 0; i < nodes; ++i) {
    // By where the middle of a node lies.
    const uint64_t middle = before + cycles[i] / 2;
    stage_of[i] = static_cast<int32_t>(
        std::min<uint64_t>(middle * stages / std::max<uint64_t>(total, 1), stages - 1));
    before += cycles[i];
  }
  return stage_of;
}

using LoadedPartitions = std::vector<std::unique_ptr<const LoadedPartition>>;

// Hands the executables to the device.
Result<LoadedPartitions> LoadPartitions(std::vector<CompiledPartition> compiled, Device* device,
                                        uint32_t residency_set, std::span<const int32_t> stages) {
  LoadedPartitions partitions;
  for (CompiledPartition& part : compiled) {
    auto executable = std::make_shared<const Executable>(std::move(part.compiled.executable));
    const LoadOptions load{.residency_set = residency_set,
                           .stage = stages.empty() ? -1 : stages[part.nodes[0]]};
    ATOLL_ASSIGN_OR_RETURN(const ExecutableId id, device->Load(executable, load));
    auto partition = std::make_unique<LoadedPartition>(device, id, executable);
    partition->nodes = std::move(part.nodes);
    partition->boundary = std::move(part.boundary);
    partition->report = std::make_shared<const PartitionReport>(
        MakeReport(*executable, device->info(), std::move(part.compiled)));
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

// For a Coral: each operator that was compiled for one is a partition.
Result<LoadedPartitions> LoadForCoral(const Graph& graph, Device* device, uint32_t residency_set,
                                      std::vector<std::string>* refusals) {
  LoadedPartitions partitions;
  ATOLL_ASSIGN_OR_RETURN(std::vector<CoralPartition> compiled,
                         ReadCoralPartitions(graph, device->info(), refusals));
  for (CoralPartition& part : compiled) {
    ATOLL_ASSIGN_OR_RETURN(const ExecutableId id,
                           device->Load(part.executable, {.residency_set = residency_set}));
    const Node& node = graph.nodes[part.node];
    auto partition = std::make_unique<LoadedPartition>(device, id, std::move(part.executable));
    partition->nodes = {part.node};
    partition->boundary = {.inputs = node.inputs, .outputs = node.outputs, .state = {}};
    partition->report = std::make_shared<const PartitionReport>(std::move(part.report));
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

Status RequireCompilable(const DeviceInfo& device) {
  if (device.family == DeviceFamily::kAtoll1) return {};
  return Unsupported("%s is a Coral, for which only Google's edgetpu_compiler makes executables",
                     device.name.c_str());
}

std::vector<DescribedExecutable> DescribeAll(const Graph& graph,
                                             std::vector<CompiledPartition> partitions) {
  std::vector<DescribedExecutable> described;
  for (CompiledPartition& partition : partitions) {
    DescribedExecutable& to = described.emplace_back();
    to.executable = std::move(partition.compiled.executable);
    for (const int32_t node : partition.nodes) {
      to.node_names.push_back(Describe(graph, graph.nodes[node]));
    }
  }
  return described;
}

Result<std::vector<uint8_t>> CompileModel(const Model& model,
                                          const std::vector<PartitionExecutable>& partitions) {
  ATOLL_ASSIGN_OR_RETURN(const CpuFeatures features, DetectCpuFeatures());
  return WriteCompiledModel(model.graphs(), model.extras(), partitions, features);
}

}  // namespace

Result<std::vector<DescribedExecutable>> ReadExecutables(std::span<const uint8_t> bytes) {
  if (LooksLikeExecutable(bytes)) {
    std::vector<DescribedExecutable> one(1);
    ATOLL_ASSIGN_OR_RETURN(one[0].executable, ReadExecutable(bytes));
    return one;
  }
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::FromBuffer(bytes));
  std::vector<std::string> refusals;
  ATOLL_ASSIGN_OR_RETURN(std::vector<CompiledPartition> partitions,
                         ReadCompiledPartitions(model->graph(), &refusals));
  return DescribeAll(model->graph(), std::move(partitions));
}

// What all plans of a graph share.
struct DeviceDelegate::LoadedPlan {
  LoadedPartitions partitions;
  std::vector<std::string> refusals;
};

Result<std::shared_ptr<const DeviceDelegate::LoadedPlan>> DeviceDelegate::Load(
    const Graph& graph, uint32_t residency_set) {
  // Sets of the caller's are of the lower half.
  if (residency_set == 0) residency_set = ++graphs_ | 0x8000'0000;
  const DeviceInfo& device = device_->info();
  auto plan = std::make_shared<LoadedPlan>();
  if (device.family == DeviceFamily::kCoral) {
    ATOLL_ASSIGN_OR_RETURN(plan->partitions,
                           LoadForCoral(graph, device_.get(), residency_set, &plan->refusals));
    return std::shared_ptr<const LoadedPlan>(std::move(plan));
  }
  if (!graph.compiled.empty() && options_.max_partition_nodes == 0 && options_.stages == 1) {
    ATOLL_ASSIGN_OR_RETURN(std::vector<CompiledPartition> partitions,
                           ReadCompiledPartitions(graph, &plan->refusals));
    Result<LoadedPartitions> loaded =
        LoadPartitions(std::move(partitions), device_.get(), residency_set, {});
    if (loaded.ok()) {
      plan->partitions = *std::move(loaded);
      return std::shared_ptr<const LoadedPlan>(std::move(plan));
    }
    // Made for a device with more memory.
    if (loaded.status().code() != StatusCode::kResourceExhausted) return loaded.status();
  }
  ATOLL_ASSIGN_OR_RETURN(CompiledGraph compiled,
                         CompileGraph(graph, device, options_.max_partition_nodes, {}));
  std::vector<int32_t> stages;
  if (options_.stages > 1) {
    stages = CutIntoStages(graph.nodes.size(), compiled.partitions, device, options_.stages);
    ATOLL_ASSIGN_OR_RETURN(compiled,
                           CompileGraph(graph, device, options_.max_partition_nodes, stages));
  }
  plan->refusals = std::move(compiled.refusals);
  ATOLL_ASSIGN_OR_RETURN(plan->partitions, LoadPartitions(std::move(compiled.partitions),
                                                          device_.get(), residency_set, stages));
  return std::shared_ptr<const LoadedPlan>(std::move(plan));
}

std::shared_ptr<DeviceDelegate::Shelf> DeviceDelegate::FindShelf(const Graph& graph,
                                                                 uint32_t residency_set) {
  const std::lock_guard lock(shelves_mutex_);
  std::erase_if(shelves_, [](const auto& entry) {
    // Nobody else can come to it now; who was there last has left it with its mutex.
    const std::unique_lock idle(entry.second->mutex, std::try_to_lock);
    return idle.owns_lock() && entry.second.use_count() == 1 && entry.second->plan.expired();
  });
  std::shared_ptr<Shelf>& shelf = shelves_[{&graph, residency_set}];
  if (shelf == nullptr) shelf = std::make_shared<Shelf>();
  return shelf;
}

Result<DelegatePlan> DeviceDelegate::Plan(const Graph& graph, const PlanOptions& options) {
  const std::shared_ptr<Shelf> shelf = FindShelf(graph, options.residency_set);
  std::shared_ptr<const LoadedPlan> loaded;
  {
    const std::lock_guard lock(shelf->mutex);
    loaded = shelf->plan.lock();
    if (loaded == nullptr) {
      ATOLL_ASSIGN_OR_RETURN(loaded, Load(graph, options.residency_set));
      shelf->plan = loaded;
    }
  }
  DelegatePlan plan;
  plan.refusals = loaded->refusals;
  for (const auto& from : loaded->partitions) {
    Partition& partition = plan.partitions.emplace_back();
    partition.nodes = from->nodes;
    partition.inputs = from->boundary.inputs;
    partition.outputs = from->boundary.outputs;
    partition.report = from->report;
    // Executors keep all that was loaded with theirs.
    partition.executor = std::make_unique<PartitionExecutor>(
        std::shared_ptr<const LoadedPartition>(loaded, from.get()), options.priority);
  }
  return plan;
}

Result<std::vector<uint8_t>> CompileForCpu(const Model& model) { return CompileModel(model, {}); }

Result<std::vector<uint8_t>> DeviceDelegate::Compile(const Model& model) const {
  ATOLL_RETURN_IF_ERROR(RequireCompilable(device_->info()));
  ATOLL_ASSIGN_OR_RETURN(
      const CompiledGraph compiled,
      CompileGraph(model.graph(), device_->info(), options_.max_partition_nodes, {}));
  if (compiled.partitions.empty()) {
    return Unsupported("no operator of the model can run on the device: nothing to compile");
  }
  std::vector<PartitionExecutable> partitions;
  for (const CompiledPartition& part : compiled.partitions) {
    partitions.push_back({part.nodes, part.boundary, &part.compiled.executable});
  }
  return CompileModel(model, partitions);
}

Result<std::vector<DescribedExecutable>> DeviceDelegate::CompileExecutables(
    const Graph& graph) const {
  ATOLL_RETURN_IF_ERROR(RequireCompilable(device_->info()));
  ATOLL_ASSIGN_OR_RETURN(CompiledGraph compiled,
                         CompileGraph(graph, device_->info(), options_.max_partition_nodes, {}));
  return DescribeAll(graph, std::move(compiled.partitions));
}

}  // namespace atollrt
