// SPDX-License-Identifier: Apache-2.0
#include "driver/recovering_device.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

// A program that faults twice is at fault itself.
constexpr int kFaultsMax = 2;

bool IsRecoverable(StatusCode code) {
  return code == StatusCode::kDeviceLost || code == StatusCode::kTimeout ||
         code == StatusCode::kCorruptModel;
}

bool IsTransition(DeviceState from, DeviceState to) {
  switch (from) {
    case DeviceState::kReady:
    case DeviceState::kFallback:
    case DeviceState::kLost:
      return to == DeviceState::kRecovering;
    case DeviceState::kRecovering:
      return to != DeviceState::kRecovering;
  }
  return false;
}

}  // namespace

struct RecoveringDevice::Loaded {
  ExecutableId id = 0;
  std::shared_ptr<const AnyExecutable> executable;
  LoadOptions options;
  ExecutableId on_device = 0;    // its number there, if there is a device
  ExecutableId on_fallback = 0;  // likewise, once it was needed there
  int requests = 0;              // submitted and not waited for
};

struct RecoveringDevice::Slot {
  RequestId id = 0;  // 0: free
  Request request;
  Loaded* loaded = nullptr;
  RequestId on_device = 0;  // its number on device `device_number`, if it was submitted there
  uint64_t device_number = 0;
  RequestId on_fallback = 0;  // its number there, while it runs there
  uint64_t recoveries = 0;    // that had begun when it was submitted
  int failures = 0;           // on the device
  bool waited_for = false;
  bool cancelled = false;
  RequestReport report;
};

RecoveringDevice::RecoveringDevice(std::unique_ptr<Device> device, Options options)
    : options_(std::move(options)), info_(device->info()) {
  current_ = {.device = std::move(device), .number = 1};
  if (options_.bus_generation) generation_seen_ = options_.bus_generation();
}

RecoveringDevice::~RecoveringDevice() = default;

DeviceState RecoveringDevice::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

DeviceHealth RecoveringDevice::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

void RecoveringDevice::MoveTo(DeviceState state) {
  ATOLL_CHECK(IsTransition(state_, state));
  state_ = state;
  changed_.notify_all();
}

void RecoveringDevice::WaitUntilRecovered(Lock& lock) {
  changed_.wait(lock, [this] { return state_ != DeviceState::kRecovering; });
}

// Executables.

RecoveringDevice::Loaded* RecoveringDevice::FindLoaded(ExecutableId id) {
  for (const auto& loaded : loaded_) {
    if (loaded->id == id) return loaded.get();
  }
  return nullptr;
}

Result<ExecutableId> RecoveringDevice::Load(std::shared_ptr<const AnyExecutable> executable,
                                            const LoadOptions& options) {
  auto loaded = std::make_unique<Loaded>();
  loaded->options = options;
  loaded->executable = std::move(executable);
  Lock lock(mutex_);
  for (int looks = 0;; ++looks) {
    WaitUntilRecovered(lock);
    if (state_ == DeviceState::kReady) {
      const Result<ExecutableId> id = current_.device->Load(loaded->executable, options);
      if (id.ok()) {
        loaded->on_device = *id;
        break;
      }
      if (id.code() != StatusCode::kDeviceLost || looks == options_.attempts_max) {
        return id.status();
      }
      Recover(lock, options_.recovery_timeout, false);
    } else if (SeenAgain(looks)) {
      LookAgain(lock);
    } else if (state_ == DeviceState::kFallback) {
      ATOLL_RETURN_IF_ERROR(LoadOnFallback(loaded.get()));
      break;
    } else {
      return DeviceLost("Load while device %s is away: %s", info_.name.c_str(),
                        loss_.message().c_str());
    }
  }
  do {
    ++last_executable_;
  } while (last_executable_ == 0 || FindLoaded(last_executable_) != nullptr);
  loaded->id = last_executable_;
  loaded_.push_back(std::move(loaded));
  return last_executable_;
}

Status RecoveringDevice::Unload(ExecutableId id) {
  Lock lock(mutex_);
  WaitUntilRecovered(lock);
  const Loaded* loaded = FindLoaded(id);
  if (loaded == nullptr) return InvalidArgument("Unload of executable %u, which is not loaded", id);
  if (loaded->requests > 0) {
    return Status(StatusCode::kDeviceBusy,
                  Format("Unload of '%s' with %d requests in progress: wait for them first",
                         loaded->executable->name.c_str(), loaded->requests));
  }
  Status status;
  if (current_.device != nullptr) status = current_.device->Unload(loaded->on_device);
  if (status.ok() && loaded->on_fallback != 0) status = fallback_->Unload(loaded->on_fallback);
  std::erase_if(loaded_, [id](const auto& other) { return other->id == id; });
  return status;
}

// Requests.

RecoveringDevice::Slot* RecoveringDevice::FindSlot(RequestId id) {
  for (const auto& slot : slots_) {
    if (id != 0 && slot->id == id) return slot.get();
  }
  return nullptr;
}

RecoveringDevice::Slot* RecoveringDevice::TakeFreeSlot() {
  for (const auto& slot : slots_) {
    if (slot->id == 0) return slot.get();
  }
  slots_.push_back(std::make_unique<Slot>());
  return slots_.back().get();
}

Status RecoveringDevice::SubmitTo(Device& device, ExecutableId executable, Slot* slot,
                                  RequestId* id) {
  slot->request.executable = executable;
  ATOLL_ASSIGN_OR_RETURN(*id, device.Submit(slot->request));
  return {};
}

Result<RequestId> RecoveringDevice::Submit(const Request& request) {
  const std::lock_guard lock(mutex_);
  Loaded* loaded = FindLoaded(request.executable);
  if (loaded == nullptr) {
    return InvalidArgument("Submit for executable %u, which is not loaded", request.executable);
  }
  if (state_ == DeviceState::kLost &&
      (!options_.bus_generation || options_.bus_generation() == generation_seen_) &&
      options_.now() < next_look_) {
    return DeviceLost("device %s is away: %s", info_.name.c_str(), loss_.message().c_str());
  }
  do {
    ++last_request_;
  } while (last_request_ == 0 || FindSlot(last_request_) != nullptr);
  Slot* slot = TakeFreeSlot();
  slot->request = request;
  slot->loaded = loaded;
  slot->on_device = 0;
  slot->on_fallback = 0;
  slot->recoveries = recoveries_;
  slot->failures = 0;
  slot->waited_for = false;
  slot->cancelled = false;
  slot->report = {};
  if (state_ == DeviceState::kReady) {
    const Status status = SubmitTo(*current_.device, loaded->on_device, slot, &slot->on_device);
    // One that is lost is brought back in Wait.
    if (!status.ok() && status.code() != StatusCode::kDeviceLost) return status;
    slot->device_number = current_.number;
  }
  slot->id = last_request_;
  ++loaded->requests;
  return slot->id;
}

Status RecoveringDevice::Cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  Slot* slot = FindSlot(id);
  if (slot == nullptr) return InvalidArgument("Cancel of request %u, which is unknown", id);
  slot->cancelled = true;
  changed_.notify_all();
  if (slot->on_fallback != 0) return fallback_->Cancel(slot->on_fallback);
  if (slot->on_device != 0 && current_.device != nullptr &&
      slot->device_number == current_.number) {
    return current_.device->Cancel(slot->on_device);
  }
  return {};
}

Status RecoveringDevice::Wait(RequestId id, RequestReport* report) {
  Lock lock(mutex_);
  Slot* slot = FindSlot(id);
  if (slot == nullptr || slot->waited_for) {
    return InvalidArgument("Wait for request %u, which is unknown or was waited for already", id);
  }
  slot->waited_for = true;
  std::optional<Status> end;
  int replays = 0;
  int looks = 0;  // for a device that was given up
  bool on_fallback = false;
  while (!end.has_value()) {
    if (state_ == DeviceState::kRecovering) {
      changed_.wait(lock);
    } else if (state_ == DeviceState::kReady) {
      Status status = RunOnDevice(lock, slot);
      if (!IsRecoverable(status.code())) {
        end = std::move(status);
      } else {
        end = AfterFailure(lock, slot, std::move(status));
        if (!end.has_value()) ++replays;
        if (state_ == DeviceState::kLost) ++looks;  // it has just been looked for
      }
    } else if (slot->cancelled) {
      end = Status(StatusCode::kCancelled, Format("request %u was cancelled", id));
    } else if (SeenAgain(looks)) {
      ++looks;
      LookAgain(lock);
    } else if (state_ == DeviceState::kFallback) {
      end = RunOnFallback(lock, slot);
      on_fallback = true;
    } else {
      end = DeviceLost("request %u for '%s': device %s is away: %s", id,
                       slot->loaded->executable->name.c_str(), info_.name.c_str(),
                       loss_.message().c_str());
    }
    // A device that fails this request again and again, though it comes back each time.
    if (end.has_value() && slot->failures >= options_.attempts_max && !end->ok() && !on_fallback &&
        options_.on_loss == OnDeviceLoss::kFallback && options_.open_fallback &&
        end->code() != StatusCode::kCancelled) {
      Log(LogSeverity::kWarning, "device %s: request %u has failed %d times and goes elsewhere",
          info_.name.c_str(), id, slot->failures);
      end = RunOnFallback(lock, slot);
      on_fallback = true;
    }
  }
  if (report != nullptr) {
    *report = slot->report;
    report->replays = replays;
    report->on_fallback = on_fallback && end->ok();
  }
  --slot->loaded->requests;
  slot->request.inputs.clear();
  slot->request.outputs.clear();
  slot->id = 0;
  return *std::move(end);
}

Status RecoveringDevice::RunOnDevice(Lock& lock, Slot* slot) {
  const Numbered here = current_;
  if (slot->on_device == 0 || slot->device_number != here.number) {
    slot->on_device = 0;
    if (slot->cancelled) {
      return Status(StatusCode::kCancelled, Format("request %u was cancelled", slot->id));
    }
    slot->recoveries = recoveries_;
    slot->device_number = here.number;
    ATOLL_RETURN_IF_ERROR(SubmitTo(*here.device, slot->loaded->on_device, slot, &slot->on_device));
  }
  ++users_;
  lock.unlock();
  Status status = here.device->Wait(slot->on_device, &slot->report);
  lock.lock();
  slot->on_device = 0;
  if (--users_ == 0) changed_.notify_all();
  return status;
}

std::optional<Status> RecoveringDevice::AfterFailure(Lock& lock, Slot* slot, Status status) {
  // Those that were in progress when the device failed another request did nothing wrong.
  if (slot->recoveries == recoveries_) {
    ++health_.failures;
    ++slot->failures;
    const bool last = slot->failures >= options_.attempts_max ||
                      (status.code() == StatusCode::kCorruptModel && slot->failures >= kFaultsMax);
    // A device that others can use, too, is wanted in any case.
    Recover(lock, options_.recovery_timeout, false);
    if (last || options_.on_loss == OnDeviceLoss::kFail) return status;
  } else if (options_.on_loss == OnDeviceLoss::kFail) {
    return status;
  }
  if (state_ == DeviceState::kReady || state_ == DeviceState::kRecovering) {
    ++health_.replays;
    Log(LogSeverity::kInfo, "device %s: request %u for '%s' is sent again after: %s",
        info_.name.c_str(), slot->id, slot->loaded->executable->name.c_str(),
        status.message().c_str());
  }
  return std::nullopt;
}

// Elsewhere.

Status RecoveringDevice::LoadOnFallback(Loaded* loaded) {
  if (fallback_ == nullptr) {
    ATOLL_ASSIGN_OR_RETURN(fallback_, options_.open_fallback());
    Log(LogSeverity::kWarning, "device %s: requests go to %s until it is there again",
        info_.name.c_str(), fallback_->info().name.c_str());
  }
  if (loaded->on_fallback == 0) {
    ATOLL_ASSIGN_OR_RETURN(loaded->on_fallback,
                           fallback_->Load(loaded->executable, loaded->options));
  }
  return {};
}

Status RecoveringDevice::RunOnFallback(Lock& lock, Slot* slot) {
  ATOLL_RETURN_IF_ERROR(LoadOnFallback(slot->loaded));
  ATOLL_RETURN_IF_ERROR(SubmitTo(*fallback_, slot->loaded->on_fallback, slot, &slot->on_fallback));
  lock.unlock();
  Status status = fallback_->Wait(slot->on_fallback, &slot->report);
  lock.lock();
  slot->on_fallback = 0;
  if (status.ok()) ++health_.fallbacks;
  return status;
}

// Back again.

bool RecoveringDevice::SeenAgain(int looks) {
  if (looks >= options_.attempts_max) return false;  // one that comes and goes all the time
  if (looks == 0 && options_.now() >= next_look_) return true;
  if (!options_.bus_generation) return state_ == DeviceState::kLost && looks == 0;
  return options_.bus_generation() != generation_seen_;
}

void RecoveringDevice::LookAgain(Lock& lock) {
  const bool something_changed =
      !options_.bus_generation || options_.bus_generation() != generation_seen_;
  Recover(lock, something_changed ? options_.lookup_timeout : std::chrono::milliseconds(0), false);
}

void RecoveringDevice::Recover(Lock& lock, std::chrono::milliseconds timeout, bool reset) {
  if (state_ == DeviceState::kRecovering) {
    WaitUntilRecovered(lock);
    return;
  }
  ++recoveries_;
  const bool was_ready = state_ == DeviceState::kReady;
  if (was_ready && !reset && current_.device->state() == DeviceState::kReady) {
    ++health_.resets;  // it has reset itself
    return;
  }
  MoveTo(DeviceState::kRecovering);
  const bool may_wait = reset || !was_ready || options_.on_loss != OnDeviceLoss::kFail;
  const Deadline deadline = options_.now() + timeout;
  if (was_ready) {
    // First as it is, then opened anew, which needs the old one closed.
    std::shared_ptr<Device> device = current_.device;
    lock.unlock();
    const bool back = device->Reset().ok();
    lock.lock();
    if (back) {
      ++health_.resets;
      MoveTo(DeviceState::kReady);
      return;
    }
    Log(LogSeverity::kWarning, "device %s: looking for it on the bus", info_.name.c_str());
    changed_.wait(lock, [this] { return users_ == 0; });
    current_.device = nullptr;
    lock.unlock();
    device = nullptr;
    lock.lock();
  }
  if (options_.bus_generation) generation_seen_ = options_.bus_generation();
  std::vector<ExecutableId> ids;
  lock.unlock();
  Result<std::unique_ptr<Device>> reopened = Reopen(may_wait ? deadline : options_.now(), &ids);
  lock.lock();
  if (reopened.ok()) {
    current_ = {.device = *std::move(reopened), .number = current_.number + 1};
    for (size_t i = 0; i < ids.size(); ++i) loaded_[i]->on_device = ids[i];
    ++health_.reopenings;
    Log(LogSeverity::kWarning, "device %s is there again", info_.name.c_str());
    MoveTo(DeviceState::kReady);
    return;
  }
  loss_ = reopened.status();
  look_pause_ =
      was_ready ? options_.look_pause_min : std::min(2 * look_pause_, options_.look_pause_max);
  next_look_ = options_.now() + look_pause_;
  if (was_ready) {
    ++health_.losses;
    Log(LogSeverity::kError, "device %s is lost: %s", info_.name.c_str(), loss_.message().c_str());
  }
  const bool has_fallback =
      options_.on_loss == OnDeviceLoss::kFallback && options_.open_fallback != nullptr;
  MoveTo(has_fallback ? DeviceState::kFallback : DeviceState::kLost);
}

// Reads loaded_ without the mutex: nothing changes it in Recovering.
Result<std::unique_ptr<Device>> RecoveringDevice::Reopen(Deadline deadline,
                                                         std::vector<ExecutableId>* ids) const {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, options_.reopen(deadline));
  const DeviceInfo& info = device->info();
  if (info.array_rows != info_.array_rows || info.array_columns != info_.array_columns ||
      info.memory_bytes != info_.memory_bytes ||
      info.program_memory_bytes != info_.program_memory_bytes) {
    return DeviceLost("another device than before answers: array %ux%u, %llu bytes of memory",
                      info.array_rows, info.array_columns,
                      static_cast<unsigned long long>(info.memory_bytes));
  }
  for (const auto& loaded : loaded_) {
    ATOLL_ASSIGN_OR_RETURN(const ExecutableId id,
                           device->Load(loaded->executable, loaded->options));
    ids->push_back(id);
  }
  return device;
}

Status RecoveringDevice::Reset() {
  Lock lock(mutex_);
  WaitUntilRecovered(lock);
  Recover(lock, options_.recovery_timeout, true);
  if (state_ == DeviceState::kReady) return {};
  return DeviceLost("device %s did not come back after a reset: %s", info_.name.c_str(),
                    loss_.message().c_str());
}

}  // namespace atollrt
