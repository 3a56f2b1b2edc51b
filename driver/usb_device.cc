// SPDX-License-Identifier: Apache-2.0
#include "driver/usb_device.h"

#include <algorithm>
#include <utility>

#include "driver/timing.h"
#include "runtime/base/log.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kOpenTimeout{2000};      // all of Identify and ResetCore
constexpr std::chrono::milliseconds kRecoveryTimeout{2000};  // likewise, and for fault registers
constexpr std::chrono::milliseconds kPortResetTimeout{5000};
constexpr std::chrono::milliseconds kLongestTimeout{24 * 3600 * 1000};

// The caching program's request id on the wire; no request has it.
constexpr uint32_t kCachingRequest = 0;

bool SameDevice(const DeviceInfo& a, const DeviceInfo& b) {
  return a.array_rows == b.array_rows && a.array_columns == b.array_columns &&
         a.memory_bytes == b.memory_bytes && a.program_memory_bytes == b.program_memory_bytes;
}

template <typename Span>
Status CheckSizes(const Executable& executable, const char* kind, const std::vector<Layer>& layers,
                  const std::vector<Span>& buffers) {
  if (buffers.size() != layers.size()) {
    return InvalidArgument("'%s' has %zu %ss, the request brings %zu", executable.name.c_str(),
                           layers.size(), kind, buffers.size());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (buffers[i].size() != layers[i].bytes) {
      return InvalidArgument("%s %zu '%s' of '%s' has %llu bytes, the request brings %zu", kind, i,
                             layers[i].name.c_str(), executable.name.c_str(),
                             static_cast<unsigned long long>(layers[i].bytes), buffers[i].size());
    }
  }
  return {};
}

}  // namespace

const char* DeviceStateName(DeviceState state) {
  return state == DeviceState::kReady ? "Ready" : "Lost";
}

struct UsbDevice::Loaded {
  ExecutableId id = 0;
  std::shared_ptr<const Executable> executable;
  std::vector<uint8_t> programs;  // encoded: caching, then inference
  Footprint footprint;
  uint64_t macs = 0;  // of one inference
  int requests = 0;   // submitted and not completed
};

struct UsbDevice::Slot {
  enum class Phase { kFree, kQueued, kRunning, kDone };
  Phase phase = Phase::kFree;
  RequestId id = 0;
  Request request;
  Loaded* loaded = nullptr;
  Deadline deadline;
  bool cancelled = false;
  Status status;
  RequestReport report;
};

// One request on its way over the wire.
struct UsbDevice::Run {
  Slot* slot = nullptr;
  Placement placement;
  bool upload = false;
  std::vector<std::string> evicted;  // names, for the log
};

struct UsbDevice::Outcome {
  Status status;
  bool lost = false;
};

Result<std::unique_ptr<Device>> UsbDevice::Open(std::unique_ptr<UsbTransport> transport,
                                                Options options) {
  ProtocolSession session(transport.get(), options.now);
  const Deadline deadline = options.now() + kOpenTimeout;
  Result<DeviceInfo> info = session.Identify(deadline);
  if (!info.ok()) return Status(info.status()).WithContext("device " + options.name);
  ATOLL_RETURN_IF_ERROR(session.ResetCore(deadline).WithContext("device " + options.name));
  info->name = options.name;
  info->description = options.description;
  info->note = options.note;
  info->host_seconds = options.host_seconds;
  return std::unique_ptr<Device>(
      new UsbDevice(std::move(transport), std::move(options), *std::move(info)));
}

UsbDevice::UsbDevice(std::unique_ptr<UsbTransport> transport, Options options, DeviceInfo info)
    : name_(std::move(options.name)),
      now_(std::move(options.now)),
      request_timeout_min_(options.request_timeout_min),
      info_(std::move(info)),
      transport_(std::move(transport)),
      activity_(ActivityPublisher::Create(options.activity_directory, info_)),
      session_(transport_.get(), now_),
      residency_(info_.memory_bytes, info_.program_memory_bytes) {}

UsbDevice::~UsbDevice() = default;

DeviceState UsbDevice::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Status UsbDevice::RequireReady(const char* call) const {
  if (state_ == DeviceState::kReady) return {};
  return DeviceLost("%s in state %s of device %s, needs state %s: call Reset", call,
                    DeviceStateName(state_), name_.c_str(), DeviceStateName(DeviceState::kReady));
}

// Executables.

Result<ExecutableId> UsbDevice::Load(std::shared_ptr<const Executable> executable) {
  if (executable == nullptr) return InvalidArgument("Load of no executable");
  ATOLL_RETURN_IF_ERROR(ValidateExecutable(*executable));
  auto loaded = std::make_unique<Loaded>();
  for (const auto* program : {&executable->caching_program, &executable->inference_program}) {
    for (const Instruction& instruction : *program) {
      const EncodedInstruction encoded = Encode(instruction);
      loaded->programs.insert(loaded->programs.end(), encoded.begin(), encoded.end());
    }
  }
  loaded->footprint = FootprintOf(*executable);
  for (const Instruction& instruction : executable->inference_program) {
    loaded->macs += MultiplyAccumulates(instruction);
  }
  loaded->executable = std::move(executable);

  const std::lock_guard lock(mutex_);
  ATOLL_RETURN_IF_ERROR(RequireReady("Load"));
  ATOLL_RETURN_IF_ERROR(residency_.CheckFits(loaded->footprint)
                            .WithContext(Format("'%s' can never fit on device %s",
                                                loaded->executable->name.c_str(), name_.c_str())));
  do {
    ++last_executable_;
  } while (last_executable_ == 0 || FindLoaded(last_executable_) != nullptr);
  loaded->id = last_executable_;
  loaded_.push_back(std::move(loaded));
  return last_executable_;
}

Status UsbDevice::Unload(ExecutableId id) {
  const std::lock_guard lock(mutex_);
  const Loaded* loaded = FindLoaded(id);
  if (loaded == nullptr) return InvalidArgument("Unload of executable %u, which is not loaded", id);
  if (loaded->requests > 0) {
    return Status(StatusCode::kDeviceBusy,
                  Format("Unload of '%s' with %d requests in progress: wait for them first",
                         loaded->executable->name.c_str(), loaded->requests));
  }
  residency_.Remove(id);
  std::erase_if(loaded_, [id](const auto& other) { return other->id == id; });
  return {};
}

UsbDevice::Loaded* UsbDevice::FindLoaded(ExecutableId id) {
  for (const auto& loaded : loaded_) {
    if (loaded->id == id) return loaded.get();
  }
  return nullptr;
}

// Requests.

UsbDevice::Slot* UsbDevice::FindSlot(RequestId id) {
  for (const auto& slot : slots_) {
    if (slot->phase != Slot::Phase::kFree && slot->id == id) return slot.get();
  }
  return nullptr;
}

UsbDevice::Slot* UsbDevice::TakeFreeSlot() {
  for (const auto& slot : slots_) {
    if (slot->phase == Slot::Phase::kFree) return slot.get();
  }
  slots_.push_back(std::make_unique<Slot>());
  queue_.reserve(slots_.size());
  return slots_.back().get();
}

Result<RequestId> UsbDevice::Submit(const Request& request) {
  const std::lock_guard lock(mutex_);
  ATOLL_RETURN_IF_ERROR(RequireReady("Submit"));
  Loaded* loaded = FindLoaded(request.executable);
  if (loaded == nullptr) {
    return InvalidArgument("Submit for executable %u, which is not loaded", request.executable);
  }
  const Executable& executable = *loaded->executable;
  ATOLL_RETURN_IF_ERROR(CheckSizes(executable, "input", executable.inputs, request.inputs));
  ATOLL_RETURN_IF_ERROR(CheckSizes(executable, "output", executable.outputs, request.outputs));
  do {
    ++last_request_;
  } while (last_request_ == 0 || FindSlot(last_request_) != nullptr);

  Slot* slot = TakeFreeSlot();
  slot->phase = Slot::Phase::kQueued;
  slot->id = last_request_;
  slot->request = request;  // into memory that the slot has from earlier requests
  slot->request.timeout =
      std::min(std::max(request.timeout, request_timeout_min_), kLongestTimeout);
  slot->deadline = now_() + slot->request.timeout;
  slot->loaded = loaded;
  slot->cancelled = false;
  slot->report = {};
  ++loaded->requests;
  queue_.push_back(slot);
  changed_.notify_all();
  return slot->id;
}

Status UsbDevice::Wait(RequestId id, RequestReport* report) {
  Lock lock(mutex_);
  for (;;) {
    // Looked up anew after each pause: another Wait for the same id may have been first.
    Slot* slot = FindSlot(id);
    if (slot == nullptr) {
      return InvalidArgument("Wait for request %u, which is unknown or was waited for already", id);
    }
    if (slot->phase == Slot::Phase::kDone) {
      if (report != nullptr) *report = slot->report;
      slot->phase = Slot::Phase::kFree;
      return std::exchange(slot->status, Status());
    }
    if (slot->phase == Slot::Phase::kQueued && now_() >= slot->deadline) {
      Complete(slot, Timeout("request %u for '%s' was still queued after %lld ms", id,
                             slot->loaded->executable->name.c_str(),
                             static_cast<long long>(slot->request.timeout.count())));
    } else if (!wire_held_ && !resetting_) {
      RunOldest(lock);
    } else if (slot->phase == Slot::Phase::kQueued) {
      changed_.wait_until(lock, slot->deadline);
    } else {
      changed_.wait(lock);
    }
  }
}

Status UsbDevice::Cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  Slot* slot = FindSlot(id);
  if (slot == nullptr) return InvalidArgument("Cancel of request %u, which is unknown", id);
  if (slot->phase == Slot::Phase::kQueued) {
    Complete(slot, Status(StatusCode::kCancelled, Format("request %u was cancelled", id)));
  } else if (slot->phase == Slot::Phase::kRunning) {
    slot->cancelled = true;
  }
  return {};
}

// The one place where a request completes.
void UsbDevice::Complete(Slot* slot, Status status) {
  ATOLL_CHECK(slot->phase == Slot::Phase::kQueued || slot->phase == Slot::Phase::kRunning);
  std::erase(queue_, slot);
  slot->phase = Slot::Phase::kDone;
  slot->status = std::move(status);
  slot->request.inputs.clear();
  slot->request.outputs.clear();
  --slot->loaded->requests;
  slot->loaded = nullptr;
  changed_.notify_all();
}

void UsbDevice::Lose(const Status& reason) {
  state_ = DeviceState::kLost;
  while (!queue_.empty()) {
    Slot* slot = queue_.front();
    Complete(slot, DeviceLost("request %u did not start: %s", slot->id, reason.message().c_str()));
  }
}

UsbDevice::Run UsbDevice::Prepare(Slot* slot) {
  Run run;
  run.slot = slot;
  if (const Placement* placement = residency_.Use(slot->loaded->id)) {
    run.placement = *placement;
    return run;
  }
  run.upload = true;
  std::vector<ExecutableId> evicted;
  run.placement = residency_.Place(slot->loaded->id, slot->loaded->footprint, &evicted);
  for (const ExecutableId id : evicted) run.evicted.push_back(FindLoaded(id)->executable->name);
  return run;
}

void UsbDevice::RunOldest(Lock& lock) {
  Slot* slot = queue_.front();
  if (now_() >= slot->deadline) {
    Complete(slot, Timeout("request %u for '%s' did not start within %lld ms", slot->id,
                           slot->loaded->executable->name.c_str(),
                           static_cast<long long>(slot->request.timeout.count())));
    return;
  }
  queue_.erase(queue_.begin());
  slot->phase = Slot::Phase::kRunning;
  wire_held_ = true;
  const Run run = Prepare(slot);
  const int64_t start_ns = activity_ != nullptr ? MonotonicNs() : 0;
  if (activity_ != nullptr) activity_->Begin(start_ns);
  lock.unlock();
  Outcome outcome = Execute(run);
  lock.lock();
  wire_held_ = false;
  if (!outcome.status.ok()) residency_.Clear();  // the core was reset
  if (activity_ != nullptr) PublishEnd(*slot, !outcome.status.ok(), start_ns);
  if (outcome.lost) Lose(outcome.status);
  if (slot->cancelled) {
    outcome.status =
        Status(StatusCode::kCancelled, Format("request %u was cancelled while it ran", slot->id));
  }
  Complete(slot, std::move(outcome.status));
}

void UsbDevice::PublishEnd(const Slot& slot, bool failed, int64_t start_ns) {
  activity_->End({.start_ns = start_ns,
                  .end_ns = MonotonicNs(),
                  .failed = failed,
                  .device_cycles = slot.report.device_cycles,
                  .macs = failed ? 0 : slot.loaded->macs,
                  .bytes_to_device = slot.report.bytes_to_device,
                  .bytes_from_device = slot.report.bytes_from_device,
                  .memory_used_bytes = residency_.used_bytes()});
}

// Talking to the device.

UsbDevice::Outcome UsbDevice::Execute(const Run& run) {
  Slot& slot = *run.slot;
  const Executable& executable = *slot.loaded->executable;
  const uint64_t sent = session_.bytes_sent();
  const uint64_t received = session_.bytes_received();
  const ProtocolSession::Job job{
      .start = {.program_offset =
                    static_cast<uint32_t>(run.placement.program_offset +
                                          executable.caching_program.size() * kInstructionBytes),
                .instruction_count = static_cast<uint32_t>(executable.inference_program.size()),
                .parameter_base = run.placement.parameter_base,
                .activation_base = 0,
                .request_id = slot.id},
      .inputs = slot.request.inputs,
      .parameters = executable.streamed_parameters,
      .outputs = slot.request.outputs};
  Status status = run.upload ? Upload(run) : Status();
  if (status.ok()) {
    const Result<uint64_t> cycles = RunProgram(run, job, executable.inference_program);
    status = cycles.status();
    if (cycles.ok()) slot.report.device_cycles = *cycles;
  }
  slot.report.bytes_to_device = session_.bytes_sent() - sent;
  slot.report.bytes_from_device = session_.bytes_received() - received;
  slot.report.parameter_bytes = executable.streamed_parameters.size() +
                                (run.upload ? executable.resident_parameters.size() : 0);
  if (status.ok()) return {};

  const bool recovered = Recover(status);
  const std::string context = Format("request %u for '%s'", slot.id, executable.name.c_str());
  // A fault or a deadline keeps its code; whatever else the transport said, the conversation with
  // this device was lost.
  if (status.code() != StatusCode::kCorruptModel && status.code() != StatusCode::kTimeout) {
    status = Status(StatusCode::kDeviceLost, status.message());
  }
  return {.status = std::move(status).WithContext(context), .lost = !recovered};
}

Status UsbDevice::Upload(const Run& run) {
  const Slot& slot = *run.slot;
  const Executable& executable = *slot.loaded->executable;
  for (const std::string& evicted : run.evicted) {
    Log(LogSeverity::kInfo, "device %s: '%s' makes room for '%s'", name_.c_str(), evicted.c_str(),
        executable.name.c_str());
  }
  Log(LogSeverity::kInfo, "device %s: uploading '%s', programs %zu bytes, parameters %zu bytes",
      name_.c_str(), executable.name.c_str(), slot.loaded->programs.size(),
      executable.resident_parameters.size());
  ATOLL_RETURN_IF_ERROR(session_.StoreInstructions(run.placement.program_offset,
                                                   slot.loaded->programs, slot.deadline));
  if (executable.caching_program.empty()) return {};
  const ProtocolSession::Job job{
      .start = {.program_offset = run.placement.program_offset,
                .instruction_count = static_cast<uint32_t>(executable.caching_program.size()),
                .parameter_base = run.placement.parameter_base,
                .activation_base = 0,
                .request_id = kCachingRequest},
      .inputs = {},
      .parameters = executable.resident_parameters,
      .outputs = {}};
  return RunProgram(run, job, executable.caching_program).status();
}

// The program's cycles.
Result<uint64_t> UsbDevice::RunProgram(const Run& run, const ProtocolSession::Job& job,
                                       const std::vector<Instruction>& program) {
  ATOLL_ASSIGN_OR_RETURN(const Event event, session_.Run(job, run.slot->deadline));
  if (event.kind == EventKind::kFaulted) return DescribeFault(run, program);
  return event.detail;
}

Status UsbDevice::DescribeFault(const Run& run, const std::vector<Instruction>& program) {
  const Executable& executable = *run.slot->loaded->executable;
  ATOLL_ASSIGN_OR_RETURN(const ProtocolSession::Fault fault,
                         session_.ReadFault(now_() + kRecoveryTimeout));
  return CorruptModel("device fault %s in instruction %u (%s) of %s'%s', detail %u",
                      FaultCodeName(fault.code), fault.instruction,
                      fault.instruction < program.size()
                          ? Disassemble(program[fault.instruction]).c_str()
                          : "outside the program",
                      &program == &executable.caching_program ? "the caching program of " : "",
                      executable.name.c_str(), fault.detail);
}

// After a run that failed for `reason`. False if the device is lost.
bool UsbDevice::Recover(const Status& reason) {
  if (reason.code() == StatusCode::kDeviceLost || reason.code() == StatusCode::kCancelled) {
    Log(LogSeverity::kError, "device %s is lost: %s", name_.c_str(), reason.message().c_str());
    return false;
  }
  Log(LogSeverity::kWarning, "device %s: reset after %s", name_.c_str(), reason.message().c_str());
  Status status = session_.ResetCore(now_() + kRecoveryTimeout);
  if (!status.ok() && status.code() != StatusCode::kCancelled) status = Reopen();
  if (status.ok()) return true;
  Log(LogSeverity::kError, "device %s is lost: %s", name_.c_str(), status.message().c_str());
  return false;
}

Status UsbDevice::Reopen() {
  ATOLL_RETURN_IF_ERROR(transport_->Reset(now_() + kPortResetTimeout));
  const Deadline deadline = now_() + kOpenTimeout;
  ATOLL_ASSIGN_OR_RETURN(const DeviceInfo info, session_.Identify(deadline));
  if (!SameDevice(info, info_)) {
    return DeviceLost("another device than before answers: array %ux%u, %llu bytes of memory",
                      info.array_rows, info.array_columns,
                      static_cast<unsigned long long>(info.memory_bytes));
  }
  return session_.ResetCore(deadline);
}

Status UsbDevice::Reset() {
  Lock lock(mutex_);
  if (resetting_) {  // join the one that is under way
    changed_.wait(lock, [this] { return !resetting_; });
    if (state_ == DeviceState::kReady) return {};
    return DeviceLost("device %s did not come back after a reset", name_.c_str());
  }
  resetting_ = true;
  transport_->Cancel();  // whoever holds the wire gives it back
  changed_.wait(lock, [this] { return !wire_held_; });
  wire_held_ = true;
  Lose(DeviceLost("the device was reset by a call of Reset"));
  residency_.Clear();
  lock.unlock();
  Status status = Reopen().WithContext("device " + name_ + " did not come back after a reset");
  lock.lock();
  wire_held_ = false;
  resetting_ = false;
  if (status.ok()) state_ = DeviceState::kReady;
  changed_.notify_all();
  return status.ok() ? Status() : Status(StatusCode::kDeviceLost, status.message());
}

}  // namespace atollrt
