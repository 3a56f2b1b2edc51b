// SPDX-License-Identifier: Apache-2.0
#include "driver/usb_device.h"

#include <algorithm>
#include <utility>

#include "driver/atoll1_chip.h"
#include "runtime/base/log.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kLongestTimeout{24 * 3600 * 1000};
// So many requests of executables that are on the device go before one that would have to be
// uploaded, although it was its turn.
constexpr int kDeferralsMax = 4;

template <typename Span>
Status CheckSizes(const AnyExecutable& executable, const char* kind,
                  const std::vector<Layer>& layers, const std::vector<Span>& buffers) {
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

struct UsbDevice::Loaded {
  std::unique_ptr<PreparedExecutable> prepared;
  int requests = 0;   // submitted and not completed
  uint64_t turn = 0;  // when one of them was the last to run

  ExecutableId id() const { return prepared->id; }
  const AnyExecutable& executable() const { return *prepared->executable; }
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
  int64_t submit_ns = 0;
};

struct UsbDevice::Outcome {
  Status status;
  bool lost = false;
};

Result<std::unique_ptr<Device>> UsbDevice::Open(std::unique_ptr<UsbTransport> transport,
                                                Options options) {
  DeviceInfo known;
  known.name = options.name;
  known.description = options.description;
  known.note = options.note;
  known.emulated = options.emulated;
  known.host_seconds = options.host_seconds;
  Result<std::unique_ptr<Chip>> chip =
      Atoll1Chip::Open(std::move(transport), options.now, std::move(known));
  if (!chip.ok()) return Status(chip.status()).WithContext("device " + options.name);
  return std::unique_ptr<Device>(new UsbDevice(*std::move(chip), std::move(options)));
}

UsbDevice::UsbDevice(std::unique_ptr<Chip> chip, Options options)
    : chip_(std::move(chip)),
      name_(chip_->info().name),
      now_(std::move(options.now)),
      request_timeout_min_(options.request_timeout_min),
      activity_(ActivityPublisher::Create(options.activity_directory, chip_->info())) {}

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

Result<ExecutableId> UsbDevice::Load(std::shared_ptr<const AnyExecutable> executable,
                                     const LoadOptions& options) {
  if (executable == nullptr) return InvalidArgument("Load of no executable");
  auto loaded = std::make_unique<Loaded>();
  ATOLL_ASSIGN_OR_RETURN(loaded->prepared, chip_->Prepare(std::move(executable)));

  const std::lock_guard lock(mutex_);
  ATOLL_RETURN_IF_ERROR(RequireReady("Load"));
  do {
    ++last_executable_;
  } while (last_executable_ == 0 || FindLoaded(last_executable_) != nullptr);
  loaded->prepared->id = last_executable_;
  loaded->prepared->residency_set = options.residency_set;
  loaded_[last_executable_] = std::move(loaded);
  return last_executable_;
}

Status UsbDevice::Unload(ExecutableId id) {
  const std::lock_guard lock(mutex_);
  const Loaded* loaded = FindLoaded(id);
  if (loaded == nullptr) return InvalidArgument("Unload of executable %u, which is not loaded", id);
  if (loaded->requests > 0) {
    return Status(StatusCode::kDeviceBusy,
                  Format("Unload of '%s' with %d requests in progress: wait for them first",
                         loaded->executable().name.c_str(), loaded->requests));
  }
  chip_->Forget(*loaded->prepared);
  loaded_.erase(id);
  return {};
}

UsbDevice::Loaded* UsbDevice::FindLoaded(ExecutableId id) {
  const auto found = loaded_.find(id);
  return found != loaded_.end() ? found->second.get() : nullptr;
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
  const AnyExecutable& executable = loaded->executable();
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
  slot->submit_ns = MonotonicNs();
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
                             slot->loaded->executable().name.c_str(),
                             static_cast<long long>(slot->request.timeout.count())));
    } else if (!wire_held_ && !resetting_) {
      RunNext(lock);
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

// Takes the request that runs next (device.h) off the queue.
UsbDevice::Slot* UsbDevice::TakeNext() {
  const auto best_of = [this](const auto& may_run) {
    Slot* best = nullptr;
    for (Slot* slot : queue_) {
      if (!may_run(*slot)) continue;
      if (best == nullptr || slot->request.priority > best->request.priority ||
          (slot->request.priority == best->request.priority &&
           slot->loaded->turn < best->loaded->turn)) {
        best = slot;
      }
    }
    return best;
  };
  Slot* next = best_of([](const Slot&) { return true; });
  if (chip_->IsResident(*next->loaded->prepared)) {
    deferrals_ = 0;
  } else {
    Slot* const resident = best_of([&](const Slot& slot) {
      return slot.request.priority == next->request.priority &&
             chip_->IsResident(*slot.loaded->prepared);
    });
    const bool defers = resident != nullptr && deferrals_ < kDeferralsMax;
    deferrals_ = defers ? deferrals_ + 1 : 0;
    if (defers) next = resident;
  }
  std::erase(queue_, next);
  next->loaded->turn = ++turns_;
  return next;
}

void UsbDevice::RunNext(Lock& lock) {
  Slot* slot = TakeNext();
  if (now_() >= slot->deadline) {
    Complete(slot, Timeout("request %u for '%s' did not start within %lld ms", slot->id,
                           slot->loaded->executable().name.c_str(),
                           static_cast<long long>(slot->request.timeout.count())));
    return;
  }
  slot->phase = Slot::Phase::kRunning;
  wire_held_ = true;
  const int64_t start_ns = MonotonicNs();
  slot->report.times.queue_ns = start_ns - slot->submit_ns;
  if (activity_ != nullptr) activity_->Begin(start_ns);
  lock.unlock();
  Outcome outcome = Execute(slot);
  lock.lock();
  wire_held_ = false;
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
                  .macs = failed ? 0 : slot.loaded->prepared->macs,
                  .bytes_to_device = slot.report.bytes_to_device,
                  .bytes_from_device = slot.report.bytes_from_device,
                  .memory_used_bytes = chip_->memory_used_bytes()});
}

// Talking to the device.

UsbDevice::Outcome UsbDevice::Execute(Slot* slot) {
  Status status = chip_->Run({.prepared = slot->loaded->prepared.get(),
                              .request_id = slot->id,
                              .inputs = slot->request.inputs,
                              .outputs = slot->request.outputs,
                              .deadline = slot->deadline},
                             &slot->report);
  if (status.ok()) return {};

  const bool recovered = Recover(status);
  const std::string context =
      Format("request %u for '%s'", slot->id, slot->loaded->executable().name.c_str());
  // A fault or a deadline keeps its code; whatever else the transport said, the conversation with
  // this device was lost.
  if (status.code() != StatusCode::kCorruptModel && status.code() != StatusCode::kTimeout) {
    status = Status(StatusCode::kDeviceLost, status.message());
  }
  return {.status = std::move(status).WithContext(context), .lost = !recovered};
}

// After a run that failed for `reason`. False if the device is lost.
bool UsbDevice::Recover(const Status& reason) {
  if (reason.code() == StatusCode::kDeviceLost || reason.code() == StatusCode::kCancelled) {
    Log(LogSeverity::kError, "device %s is lost: %s", name_.c_str(), reason.message().c_str());
    return false;
  }
  Log(LogSeverity::kWarning, "device %s: reset after %s", name_.c_str(), reason.message().c_str());
  const Status status = chip_->Recover();
  if (status.ok()) return true;
  Log(LogSeverity::kError, "device %s is lost: %s", name_.c_str(), status.message().c_str());
  return false;
}

Status UsbDevice::Reset() {
  Lock lock(mutex_);
  if (resetting_) {  // join the one that is under way
    changed_.wait(lock, [this] { return !resetting_; });
    if (state_ == DeviceState::kReady) return {};
    return DeviceLost("device %s did not come back after a reset", name_.c_str());
  }
  resetting_ = true;
  chip_->Cancel();  // whoever holds the wire gives it back
  changed_.wait(lock, [this] { return !wire_held_; });
  wire_held_ = true;
  Lose(DeviceLost("the device was reset by a call of Reset"));
  lock.unlock();
  Status status =
      chip_->Reopen().WithContext("device " + name_ + " did not come back after a reset");
  lock.lock();
  wire_held_ = false;
  resetting_ = false;
  if (status.ok()) state_ = DeviceState::kReady;
  changed_.notify_all();
  return status.ok() ? Status() : Status(StatusCode::kDeviceLost, status.message());
}

}  // namespace atollrt
