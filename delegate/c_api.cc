// SPDX-License-Identifier: Apache-2.0
//
// The C interface of delegate.h over DeviceDelegate, the driver and residency; nothing else happens
// here. What libatoll-core leaves out is in c_api_full.cc.
#include "runtime/c_api.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "delegate/c_api_handles.h"
#include "delegate/delegate.h"
#include "delegate/residency_plan.h"
#include "driver/device/activity.h"
#include "driver/device_name.h"
#include "driver/isa/executable.h"
#include "driver/open_device.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/usb/usb_bus.h"
#include "runtime/base/monotonic.h"
#include "runtime/kernels/cpu_features.h"

using atollrt::AllGiven;
using atollrt::DeviceDelegateHandle;
using atollrt::FindExecutable;
using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using atollrt::ToC;

Result<const DeviceDelegateHandle*> atollrt::FindDevice(const AtollDelegate* delegate,
                                                        const char* what) {
  if (delegate == nullptr) return InvalidArgument("argument 'delegate' is NULL");
  const auto* handle = static_cast<const DeviceDelegateHandle*>(delegate);
  if (handle->device_delegate == nullptr) {
    return InvalidArgument("the delegate is the CPU, which has no %s", what);
  }
  return handle;
}

Result<std::string> atollrt::DescribeCpu() {
  ATOLL_ASSIGN_OR_RETURN(const CpuFeatures features, DetectCpuFeatures());
  return Format("this computer's CPU, %s kernels", CpuFeaturesName(features));
}

namespace {

// Keeps the strings that AtollListDevices hands out.
struct DeviceList {
  std::vector<atollrt::DeviceListing> listings;
  std::vector<AtollDeviceInfo> infos;
};

// Keeps what AtollPlanResidency hands out.
struct ResidencyResult {
  std::vector<AtollResidencyModel> models;
  std::vector<AtollResidencyTurn> turns;
  std::vector<std::vector<int32_t>> evicted;  // of each turn
  AtollResidencyPlan plan;
};

// Keeps what AtollListActivity hands out.
struct ActivityList {
  std::vector<atollrt::Activity> activities;
  std::vector<AtollActivity> infos;
};

// Counters of other processes may hold anything.
int64_t Saturated(uint64_t value) {
  return value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value);
}
int32_t Saturated(uint32_t value) {
  return value > INT32_MAX ? INT32_MAX : static_cast<int32_t>(value);
}

AtollResidencyModel Summarize(const atollrt::ResidencyModel& model) {
  AtollResidencyModel sum = {};
  for (const atollrt::ResidencyPart& part : model) {
    sum.program_bytes += Saturated(part.footprint.program_bytes);
    sum.parameter_bytes += Saturated(part.footprint.parameter_bytes);
    sum.activation_bytes =
        std::max(sum.activation_bytes, Saturated(part.footprint.activation_bytes));
    sum.upload_bytes += Saturated(part.upload.bytes);
    sum.upload_seconds += part.upload.seconds;
    sum.inference_seconds += part.inference_seconds;
  }
  return sum;
}

AtollActivityCounts CountsOf(const atollrt::ActivityCounts& counts) {
  return {.requests = Saturated(counts.requests),
          .failures = Saturated(counts.failures),
          .device_cycles = Saturated(counts.device_cycles),
          .macs = Saturated(counts.macs),
          .bytes_to_device = Saturated(counts.bytes_to_device),
          .bytes_from_device = Saturated(counts.bytes_from_device),
          .busy_seconds = counts.busy_seconds};
}

struct FoundInstruction {
  const atollrt::DescribedExecutable* from;
  atollrt::ProgramKind program;
  size_t position;

  const atollrt::Instruction& operator*() const {
    const atollrt::Executable& executable = from->executable;
    return program == atollrt::ProgramKind::kCaching ? executable.caching_program[position]
                                                     : executable.inference_program[position];
  }
};
Result<FoundInstruction> FindInstruction(const AtollExecutables* executables, int32_t index,
                                         AtollProgram program, int32_t position) {
  ATOLL_ASSIGN_OR_RETURN(const auto* from, FindExecutable(executables, index));
  const bool caching = program == ATOLL_CACHING_PROGRAM;
  if (!caching && program != ATOLL_INFERENCE_PROGRAM) return InvalidArgument("program %d", program);
  const size_t count =
      (caching ? from->executable.caching_program : from->executable.inference_program).size();
  if (position < 0 || static_cast<size_t>(position) >= count) {
    return InvalidArgument("instruction %d of %zu", position, count);
  }
  return FoundInstruction{
      from, caching ? atollrt::ProgramKind::kCaching : atollrt::ProgramKind::kInference,
      static_cast<size_t>(position)};
}

// An option that is one of some words; nullptr leaves what is there.
template <typename T, size_t n>
Status ReadChoice(const char* option, const char* given,
                  const std::pair<std::string_view, T> (&choices)[n], const char* words,
                  T* choice) {
  if (given == nullptr) return {};
  for (const auto& [word, value] : choices) {
    if (word != given) continue;
    *choice = value;
    return {};
  }
  return InvalidArgument("AtollDelegateOptions.%s is '%s', must be %s", option, given, words);
}

Status ReadOpenOptions(const AtollDelegateOptions& options, atollrt::OpenOptions* open) {
  using atollrt::CoralPerformance;
  using atollrt::OnDeviceLoss;
  constexpr std::pair<std::string_view, OnDeviceLoss> kLosses[] = {
      {"replay", OnDeviceLoss::kReplay},
      {"fallback", OnDeviceLoss::kFallback},
      {"fail", OnDeviceLoss::kFail}};
  constexpr std::pair<std::string_view, CoralPerformance> kLevels[] = {
      {"low", CoralPerformance::kLow},
      {"medium", CoralPerformance::kMedium},
      {"high", CoralPerformance::kHigh},
      {"max", CoralPerformance::kMax}};
  if (options.num_threads < 0 || options.stages < 0) {
    return InvalidArgument(
        "AtollDelegateOptions.num_threads is %d and .stages %d, must be at least 0",
        options.num_threads, options.stages);
  }
  constexpr int32_t kMaxThreads = 256;  // as of interpreters
  if (options.num_threads > kMaxThreads) {
    return InvalidArgument("AtollDelegateOptions.num_threads is %d, must be at most %d",
                           options.num_threads, kMaxThreads);
  }
  if (options.max_partition_nodes < 0) {
    return InvalidArgument(
        "AtollDelegateOptions.max_partition_nodes is %d, must be at least 0 (as many as go "
        "together)",
        options.max_partition_nodes);
  }
  if (options.device != nullptr) open->device = options.device;
  open->threads = options.num_threads;
  ATOLL_RETURN_IF_ERROR(ReadChoice("on_device_loss", options.on_device_loss, kLosses,
                                   "replay, fallback or fail", &open->on_loss));
  if (options.faults != nullptr) {
    ATOLL_ASSIGN_OR_RETURN(open->faults, atollrt::ReadFaultPlan(options.faults));
  }
  if (options.record != nullptr) open->record = options.record;
  if (options.record_note != nullptr) open->record_note = options.record_note;
  if (options.firmware != nullptr) open->coral_firmware = options.firmware;
  return ReadChoice("performance", options.performance, kLevels, "low, medium, high or max",
                    &open->coral_performance);
}

Status ReadDelegateOptions(const AtollDelegateOptions& given, AtollDelegateOptions* options) {
  return atollrt::ReadOptions(
      "AtollDelegateOptions", "ATOLL_DELEGATE_OPTIONS_INIT", &given,
      {ATOLL_END_OF(AtollDelegateOptions, device), ATOLL_END_OF(AtollDelegateOptions, num_threads),
       ATOLL_END_OF(AtollDelegateOptions, max_partition_nodes),
       ATOLL_END_OF(AtollDelegateOptions, on_device_loss),
       ATOLL_END_OF(AtollDelegateOptions, faults), ATOLL_END_OF(AtollDelegateOptions, record),
       ATOLL_END_OF(AtollDelegateOptions, record_note), ATOLL_END_OF(AtollDelegateOptions, stages),
       ATOLL_END_OF(AtollDelegateOptions, performance),
       ATOLL_END_OF(AtollDelegateOptions, firmware)},
      options, sizeof(*options));
}

Result<AtollDelegate*> CreateDelegate(const AtollDelegateOptions* given) {
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  if (given != nullptr) ATOLL_RETURN_IF_ERROR(ReadDelegateOptions(*given, &options));
  atollrt::OpenOptions open;
  ATOLL_RETURN_IF_ERROR(ReadOpenOptions(options, &open));
  ATOLL_ASSIGN_OR_RETURN(const atollrt::DeviceName name, atollrt::ParseDeviceName(open.device));
  auto handle = std::make_unique<DeviceDelegateHandle>();
  // The CPU as a delegate: interpreters that get it run everything there.
  if (name.kind == atollrt::DeviceName::Kind::kCpu) {
    if (open.faults.has_value() || !open.record.empty() || options.stages > 1) {
      return InvalidArgument(
          "the CPU is no device that could have %s; leave that out, or use the device 'emu'",
          options.stages > 1 ? "stages"
                             : (open.faults.has_value() ? "faults" : "its session recorded"));
    }
    handle->name = "cpu";
    ATOLL_ASSIGN_OR_RETURN(handle->description, atollrt::DescribeCpu());
    return handle.release();
  }
  open.usb = atollrt::SystemUsbBus();
  open.pcie = atollrt::SystemPcieBus();
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<atollrt::Device> device, atollrt::OpenDevice(open));
  handle->info = device->info();
  handle->name = handle->info.name;
  handle->description = atollrt::DescribeDevice(handle->info);
  auto device_delegate = std::make_unique<atollrt::DeviceDelegate>(
      std::move(device),
      atollrt::DeviceDelegate::Options{.max_partition_nodes = options.max_partition_nodes,
                                       .stages = std::max(options.stages, 1)});
  handle->device_delegate = device_delegate.get();
  handle->delegate = std::move(device_delegate);
  return handle.release();
}

}  // namespace

Result<atollrt::OpenOptions> atollrt::OpenOptionsOf(const AtollDelegateOptions* given) {
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  if (given != nullptr) ATOLL_RETURN_IF_ERROR(ReadDelegateOptions(*given, &options));
  OpenOptions open;
  ATOLL_RETURN_IF_ERROR(ReadOpenOptions(options, &open));
  open.usb = SystemUsbBus();
  open.pcie = SystemPcieBus();
  return open;
}

extern "C" {

AtollStatus AtollDelegateCreate(const AtollDelegateOptions* options, AtollDelegate** delegate) {
  if (delegate == nullptr) return ToC(InvalidArgument("argument 'delegate' is NULL"));
  const auto created = CreateDelegate(options);
  if (!created.ok()) return ToC(created.status());
  *delegate = *created;
  return ToC(Status());
}

void AtollDelegateDelete(AtollDelegate* delegate) { delete delegate; }

AtollStatus AtollDelegateGetDeviceInfo(const AtollDelegate* delegate, AtollDeviceInfo* info) {
  if (!AllGiven({{"delegate", delegate}, {"info", info}})) return ATOLL_INVALID_ARGUMENT;
  const auto* handle = static_cast<const DeviceDelegateHandle*>(delegate);
  *info = {.name = handle->name.c_str(),
           .description = handle->description.c_str(),
           .available = 1,
           .is_default = 0,
           .array_rows = static_cast<int32_t>(handle->info.array_rows),
           .array_columns = static_cast<int32_t>(handle->info.array_columns),
           .clock_hz = static_cast<int64_t>(handle->info.clock_hz),
           .memory_bytes = static_cast<int64_t>(handle->info.memory_bytes),
           .link_bytes_per_second = static_cast<int64_t>(handle->info.link_bytes_per_second),
           .note = handle->info.note.c_str()};
  return ToC(Status());
}

AtollStatus AtollDelegateGetDeviceDetails(const AtollDelegate* delegate,
                                          AtollDeviceDetails* details) {
  if (!AllGiven({{"delegate", delegate}, {"details", details}})) return ATOLL_INVALID_ARGUMENT;
  const auto* const handle = static_cast<const DeviceDelegateHandle*>(delegate);
  const atollrt::DeviceInfo& info = handle->info;
  const bool is_cpu = handle->device_delegate == nullptr;
  *details = {.family = is_cpu ? "" : atollrt::DeviceFamilyName(info.family),
              .isa_version = static_cast<int32_t>(info.isa_version),
              .program_memory_bytes = static_cast<int64_t>(info.program_memory_bytes),
              .request_timeout_min_ms = info.request_timeout_min.count(),
              .host_seconds = info.host_seconds};
  return ToC(Status());
}

int32_t AtollDelegateIsEmulated(const AtollDelegate* delegate) {
  if (delegate == nullptr) {
    ToC(InvalidArgument("argument 'delegate' is NULL"));
    return 0;
  }
  return static_cast<const DeviceDelegateHandle*>(delegate)->info.emulated ? 1 : 0;
}

AtollStatus AtollDelegateGetDeviceHealth(const AtollDelegate* delegate, AtollDeviceHealth* health) {
  if (!AllGiven({{"delegate", delegate}, {"health", health}})) return ATOLL_INVALID_ARGUMENT;
  const auto* handle = static_cast<const DeviceDelegateHandle*>(delegate);
  if (handle->device_delegate == nullptr) {  // nothing can happen to the CPU
    *health = {};
    return ToC(Status());
  }
  const atollrt::DeviceHealth now = handle->device_delegate->device().health();
  *health = {.failures = static_cast<int64_t>(now.failures),
             .resets = static_cast<int64_t>(now.resets),
             .reopenings = static_cast<int64_t>(now.reopenings),
             .losses = static_cast<int64_t>(now.losses),
             .replays = static_cast<int64_t>(now.replays),
             .fallbacks = static_cast<int64_t>(now.fallbacks)};
  return ToC(Status());
}

AtollStatus AtollReadRecordingNote(const char* path, AtollBytesCallback callback, void* user_data) {
  if (!AllGiven({{"path", path}, {"callback", callback}})) return ATOLL_INVALID_ARGUMENT;
  const auto note = atollrt::ReadRecordingNote(path);
  if (!note.ok()) return ToC(note.status());
  callback(note->data(), note->size(), user_data);
  return ToC(Status());
}

AtollStatus AtollPlanResidency(const AtollDelegate* delegate,
                               const AtollInterpreter* const* interpreters, int32_t count,
                               const AtollResidencyPlan** plan) {
  const auto handle = atollrt::FindDevice(delegate, "memory for models to stay in");
  if (!handle.ok()) return ToC(handle.status());
  if (!AllGiven({{"interpreters", interpreters}, {"plan", plan}})) return ATOLL_INVALID_ARGUMENT;
  if (count < 1) return ToC(InvalidArgument("%d interpreters to plan the residency of", count));
  std::vector<atollrt::ResidencyModel> models;
  for (int32_t i = 0; i < count; ++i) {
    if (interpreters[i] == nullptr) return ToC(InvalidArgument("interpreter %d is NULL", i));
    models.push_back(atollrt::ResidencyModelOf(*interpreters[i]->interpreter));
  }
  const atollrt::DeviceInfo& device = (*handle)->info;
  if (device.family == atollrt::DeviceFamily::kCoral) {
    return ToC(atollrt::Unsupported(
        "%s is a Coral: which models stay on it together was decided when they were compiled",
        device.name.c_str()));
  }
  const auto planned = atollrt::PlanResidency(
      models,
      {.memory_bytes = device.memory_bytes, .program_memory_bytes = device.program_memory_bytes});
  if (!planned.ok()) return ToC(planned.status());

  thread_local ResidencyResult result;
  result = {};
  for (size_t i = 0; i < models.size(); ++i) {
    result.models.push_back(Summarize(models[i]));
    result.models[i].in_subset = planned->in_subset[i] ? 1 : 0;
  }
  for (size_t r = 0; r < planned->rounds.size(); ++r) {
    for (const atollrt::ResidencyTurn& turn : planned->rounds[r]) {
      result.evicted.emplace_back(turn.evicted.begin(), turn.evicted.end());
      // Its elements stay where they are when the list of lists grows.
      const std::vector<int32_t>& evicted = result.evicted.back();
      result.turns.push_back(
          {.round = static_cast<int32_t>(r),
           .model = static_cast<int32_t>(turn.model),
           .upload_bytes = Saturated(turn.upload.bytes),
           .upload_seconds = turn.upload.seconds,
           .seconds = turn.upload.seconds + result.models[turn.model].inference_seconds,
           .evicted = evicted.data(),
           .evicted_count = static_cast<int32_t>(evicted.size())});
    }
  }
  result.plan = {.memory_bytes = Saturated(device.memory_bytes),
                 .program_memory_bytes = Saturated(device.program_memory_bytes),
                 .models = result.models.data(),
                 .model_count = static_cast<int32_t>(result.models.size()),
                 .all_fit = planned->all_fit ? 1 : 0,
                 .needed_memory_bytes = Saturated(planned->needed.memory_bytes),
                 .needed_program_memory_bytes = Saturated(planned->needed.program_memory_bytes),
                 .turns = result.turns.data(),
                 .turn_count = static_cast<int32_t>(result.turns.size()),
                 .round_count = static_cast<int32_t>(planned->rounds.size()),
                 .repeating_round = static_cast<int32_t>(planned->repeating_round),
                 .round_seconds = planned->round_seconds,
                 .resident_round_seconds = planned->resident_round_seconds};
  *plan = &result.plan;
  return ToC(Status());
}

AtollStatus AtollListDevices(const AtollDeviceInfo** devices, int32_t* count) {
  if (!AllGiven({{"devices", devices}, {"count", count}})) return ATOLL_INVALID_ARGUMENT;
  thread_local DeviceList list;
  auto cpu = atollrt::DescribeCpu();
  if (!cpu.ok()) return ToC(cpu.status());
  list.listings = atollrt::ListDevices(atollrt::SystemUsbBus(), atollrt::SystemPcieBus());
  list.listings.push_back({.name = "cpu", .description = *std::move(cpu), .available = true});
  list.infos.clear();
  for (const atollrt::DeviceListing& listing : list.listings) {
    AtollDeviceInfo& info = list.infos.emplace_back();
    info.name = listing.name.c_str();
    info.description = listing.description.c_str();
    info.note = "";
    info.available = listing.available ? 1 : 0;
    info.is_default = listing.is_default ? 1 : 0;
  }
  *devices = list.infos.data();
  *count = static_cast<int32_t>(list.infos.size());
  return ToC(Status());
}

AtollStatus AtollExecutablesCreate(const void* data, size_t size, AtollExecutables** executables) {
  if (!AllGiven({{"data", data}, {"executables", executables}})) return ATOLL_INVALID_ARGUMENT;
  auto list = atollrt::ReadExecutables({static_cast<const uint8_t*>(data), size});
  if (!list.ok()) return ToC(list.status());
  *executables = new AtollExecutables{*std::move(list)};
  return ToC(Status());
}

AtollStatus AtollExecutablesCreateForDevice(const AtollDelegate* delegate, const AtollModel* model,
                                            AtollExecutables** executables) {
  const auto handle = atollrt::FindDevice(delegate, "programs");
  if (!handle.ok()) return ToC(handle.status());
  if (!AllGiven({{"model", model}, {"executables", executables}})) return ATOLL_INVALID_ARGUMENT;
  auto list = (*handle)->device_delegate->CompileExecutables(model->model->graph());
  if (!list.ok()) return ToC(list.status());
  *executables = new AtollExecutables{*std::move(list)};
  return ToC(Status());
}

void AtollExecutablesDelete(AtollExecutables* executables) { delete executables; }

int32_t AtollExecutablesGetCount(const AtollExecutables* executables) {
  return executables == nullptr ? 0 : static_cast<int32_t>(executables->list.size());
}

AtollStatus AtollExecutablesGetInfo(const AtollExecutables* executables, int32_t index,
                                    AtollExecutableInfo* info) {
  if (info == nullptr) return ToC(InvalidArgument("argument 'info' is NULL"));
  const auto found = FindExecutable(executables, index);
  if (!found.ok()) return ToC(found.status());
  const atollrt::Executable& e = (*found)->executable;
  *info = {.name = e.name.c_str(),
           .isa_version = static_cast<int32_t>(e.isa_version),
           .array_rows = static_cast<int32_t>(e.array_rows),
           .array_columns = static_cast<int32_t>(e.array_columns),
           .caching_instruction_count = static_cast<int32_t>(e.caching_program.size()),
           .inference_instruction_count = static_cast<int32_t>(e.inference_program.size()),
           .resident_parameter_bytes = static_cast<int64_t>(e.resident_parameters.size()),
           .streamed_parameter_bytes = static_cast<int64_t>(e.streamed_parameters.size()),
           .activation_bytes = static_cast<int64_t>(e.activation_bytes),
           .input_bytes = static_cast<int64_t>(atollrt::TotalBytes(e.inputs)),
           .output_bytes = static_cast<int64_t>(atollrt::TotalBytes(e.outputs)),
           .estimated_cycles = static_cast<int64_t>(e.estimated_cycles)};
  return ToC(Status());
}

AtollStatus AtollExecutablesGetInstruction(const AtollExecutables* executables, int32_t index,
                                           AtollProgram program, int32_t position,
                                           AtollInstructionInfo* info) {
  if (info == nullptr) return ToC(InvalidArgument("argument 'info' is NULL"));
  const auto found = FindInstruction(executables, index, program, position);
  if (!found.ok()) return ToC(found.status());
  const atollrt::DescribedExecutable& from = *found->from;
  const int32_t node = atollrt::NodeOf(from.executable, found->program, found->position);
  thread_local std::string text;
  text = atollrt::Disassemble(**found);
  const bool named = node >= 0 && static_cast<size_t>(node) < from.node_names.size();
  *info = {.mnemonic = atollrt::Mnemonic(**found),
           .unit = atollrt::UnitName(atollrt::UnitOf(**found)),
           .cycles = static_cast<int64_t>(atollrt::InstructionCycles(from.executable, **found)),
           .node = node,
           .node_name = named ? from.node_names[static_cast<size_t>(node)].c_str() : "",
           .text = text.c_str()};
  return ToC(Status());
}

AtollStatus AtollListActivity(const AtollActivity** activities, int32_t* count) {
  if (!AllGiven({{"activities", activities}, {"count", count}})) return ATOLL_INVALID_ARGUMENT;
  const std::string directory = atollrt::ActivityDirectory();
  if (directory.empty()) {
    return ToC(atollrt::NotFound(
        "nothing is published: the environment variable ATOLL_ACTIVITY says 'off'"));
  }
  thread_local ActivityList list;
  list.activities = atollrt::ListActivity(directory, atollrt::MonotonicNs());
  list.infos.clear();
  for (const atollrt::Activity& activity : list.activities) {
    list.infos.push_back({.pid = Saturated(activity.pid),
                          .command = activity.command.c_str(),
                          .device = activity.device.c_str(),
                          .array_rows = Saturated(activity.array_rows),
                          .array_columns = Saturated(activity.array_columns),
                          .clock_hz = Saturated(activity.clock_hz),
                          .memory_bytes = Saturated(activity.memory_bytes),
                          .memory_used_bytes = Saturated(activity.memory_used_bytes),
                          .open_seconds = activity.open_seconds,
                          .running_seconds = activity.running_seconds,
                          .total = CountsOf(activity.total),
                          .recent = CountsOf(activity.recent),
                          .recent_seconds = activity.recent_seconds,
                          .step_min_seconds = activity.step_min_seconds,
                          .step_mean_seconds = activity.step_mean_seconds,
                          .step_max_seconds = activity.step_max_seconds});
  }
  *activities = list.infos.data();
  *count = static_cast<int32_t>(list.infos.size());
  return ToC(Status());
}

}  // extern "C"
