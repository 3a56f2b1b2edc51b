// SPDX-License-Identifier: Apache-2.0
#include "driver/device_group.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/base/log.h"

namespace atollrt {
namespace {

bool IsSameKind(const DeviceInfo& a, const DeviceInfo& b) {
  return a.family == b.family && a.array_rows == b.array_rows &&
         a.array_columns == b.array_columns && a.memory_bytes == b.memory_bytes &&
         a.program_memory_bytes == b.program_memory_bytes;
}

// The smaller, the better.
int RankOf(DeviceState state) {
  switch (state) {
    case DeviceState::kReady:
      return 0;
    case DeviceState::kRecovering:
      return 1;
    case DeviceState::kFallback:
      return 2;
    case DeviceState::kLost:
      break;
  }
  return 3;
}

constexpr size_t kNowhere = SIZE_MAX;

}  // namespace

struct DeviceGroup::Loaded {
  ExecutableId id = 0;
  std::vector<ExecutableId> on_device;  // its number on each, 0 where it is not
  size_t last_device = 0;
  int requests = 0;
};

struct DeviceGroup::Slot {
  RequestId id = 0;  // 0: free
  Request request;
  Loaded* loaded = nullptr;
  size_t device = kNowhere;
  RequestId on_device = 0;
  std::vector<bool> lost_on;  // devices that it was on when they were lost
  bool waited_for = false;
  bool cancelled = false;
};

Result<std::unique_ptr<Device>> DeviceGroup::Create(std::vector<std::unique_ptr<Device>> devices) {
  if (devices.empty()) return InvalidArgument("a group of no devices");
  const DeviceInfo& first = devices[0]->info();
  for (const auto& device : devices) {
    const DeviceInfo& info = device->info();
    if (!IsSameKind(first, info)) {
      return InvalidArgument(
          "devices %s (%ux%u, %llu bytes) and %s (%ux%u, %llu bytes) differ: a group has devices "
          "of one kind",
          first.name.c_str(), first.array_rows, first.array_columns,
          static_cast<unsigned long long>(first.memory_bytes), info.name.c_str(), info.array_rows,
          info.array_columns, static_cast<unsigned long long>(info.memory_bytes));
    }
  }
  return std::unique_ptr<Device>(new DeviceGroup(std::move(devices)));
}

DeviceGroup::DeviceGroup(std::vector<std::unique_ptr<Device>> devices)
    : devices_(std::move(devices)), info_(devices_[0]->info()), in_progress_(devices_.size()) {
  for (size_t i = 1; i < devices_.size(); ++i) info_.name += "," + devices_[i]->info().name;
}

DeviceGroup::~DeviceGroup() = default;

DeviceState DeviceGroup::state() const {
  DeviceState best = DeviceState::kLost;
  for (const auto& device : devices_) {
    const DeviceState state = device->state();
    if (RankOf(state) < RankOf(best)) best = state;
  }
  return best;
}

DeviceHealth DeviceGroup::health() const {
  DeviceHealth sum;
  for (const auto& device : devices_) {
    const DeviceHealth one = device->health();
    sum.failures += one.failures;
    sum.resets += one.resets;
    sum.reopenings += one.reopenings;
    sum.losses += one.losses;
    sum.replays += one.replays;
    sum.fallbacks += one.fallbacks;
  }
  return sum;
}

DeviceGroup::Loaded* DeviceGroup::FindLoaded(ExecutableId id) {
  for (const auto& loaded : loaded_) {
    if (loaded->id == id) return loaded.get();
  }
  return nullptr;
}

DeviceGroup::Slot* DeviceGroup::FindSlot(RequestId id) {
  for (const auto& slot : slots_) {
    if (id != 0 && slot->id == id) return slot.get();
  }
  return nullptr;
}

Result<ExecutableId> DeviceGroup::Load(std::shared_ptr<const AnyExecutable> executable,
                                       const LoadOptions& options) {
  auto loaded = std::make_unique<Loaded>();
  loaded->on_device.resize(devices_.size());
  Status lost;
  bool anywhere = false;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (options.stage >= 0 && static_cast<size_t>(options.stage) % devices_.size() != i) continue;
    const Result<ExecutableId> id = devices_[i]->Load(executable, options);
    if (id.ok()) {
      loaded->on_device[i] = *id;
      anywhere = true;
    } else {
      lost = id.status();
      if (lost.code() != StatusCode::kDeviceLost) break;
    }
  }
  if (!anywhere || (!lost.ok() && lost.code() != StatusCode::kDeviceLost)) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (loaded->on_device[i] != 0) (void)devices_[i]->Unload(loaded->on_device[i]).ok();
    }
    return lost;
  }
  const std::lock_guard lock(mutex_);
  do {
    ++last_executable_;
  } while (last_executable_ == 0 || FindLoaded(last_executable_) != nullptr);
  loaded->id = last_executable_;
  loaded_.push_back(std::move(loaded));
  return last_executable_;
}

Status DeviceGroup::Unload(ExecutableId id) {
  const std::lock_guard lock(mutex_);
  const Loaded* loaded = FindLoaded(id);
  if (loaded == nullptr) return InvalidArgument("Unload of executable %u, which is not loaded", id);
  if (loaded->requests > 0) {
    return Status(
        StatusCode::kDeviceBusy,
        Format("Unload of executable %u with %d requests in progress: wait for them first", id,
               loaded->requests));
  }
  Status status;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (loaded->on_device[i] == 0) continue;
    Status unloaded = devices_[i]->Unload(loaded->on_device[i]);
    if (status.ok()) status = std::move(unloaded);
  }
  std::erase_if(loaded_, [id](const auto& other) { return other->id == id; });
  return status;
}

// With the mutex held. To the device with the fewest requests among the best.
Status DeviceGroup::SubmitSomewhere(Slot* slot) {
  Loaded& loaded = *slot->loaded;
  Status status =
      DeviceLost("no device of %s is there for request %u", info_.name.c_str(), slot->id);
  for (;;) {
    size_t best = kNowhere;
    const auto score = [&](size_t i) {
      return std::tuple(RankOf(devices_[i]->state()), in_progress_[i], i != loaded.last_device);
    };
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (loaded.on_device[i] == 0 || slot->lost_on[i]) continue;
      if (best == kNowhere || score(i) < score(best)) best = i;
    }
    if (best == kNowhere) return status;
    slot->request.executable = loaded.on_device[best];
    const Result<RequestId> id = devices_[best]->Submit(slot->request);
    if (id.ok()) {
      slot->device = best;
      slot->on_device = *id;
      loaded.last_device = best;
      ++in_progress_[best];
      return {};
    }
    status = id.status();
    if (status.code() != StatusCode::kDeviceLost) return status;
    slot->lost_on[best] = true;
  }
}

Result<RequestId> DeviceGroup::Submit(const Request& request) {
  const std::lock_guard lock(mutex_);
  Loaded* loaded = FindLoaded(request.executable);
  if (loaded == nullptr) {
    return InvalidArgument("Submit for executable %u, which is not loaded", request.executable);
  }
  do {
    ++last_request_;
  } while (last_request_ == 0 || FindSlot(last_request_) != nullptr);
  Slot* slot = nullptr;
  for (const auto& other : slots_) {
    if (other->id == 0) slot = other.get();
  }
  if (slot == nullptr) {
    slots_.push_back(std::make_unique<Slot>());
    slot = slots_.back().get();
  }
  slot->request = request;
  slot->loaded = loaded;
  slot->lost_on.assign(devices_.size(), false);
  slot->waited_for = false;
  slot->cancelled = false;
  ATOLL_RETURN_IF_ERROR(SubmitSomewhere(slot));
  slot->id = last_request_;
  ++loaded->requests;
  return slot->id;
}

Status DeviceGroup::Wait(RequestId id, RequestReport* report) {
  std::unique_lock lock(mutex_);
  Slot* slot = FindSlot(id);
  if (slot == nullptr || slot->waited_for) {
    return InvalidArgument("Wait for request %u, which is unknown or was waited for already", id);
  }
  slot->waited_for = true;
  Status status;
  for (;;) {
    const size_t at = slot->device;
    lock.unlock();
    status = devices_[at]->Wait(slot->on_device, report);
    lock.lock();
    --in_progress_[at];
    if (status.code() != StatusCode::kDeviceLost || slot->cancelled) break;
    slot->lost_on[at] = true;
    if (!SubmitSomewhere(slot).ok()) break;  // what the last device said is what there is to say
    Log(LogSeverity::kWarning, "device %s: request %u goes to device %s",
        devices_[at]->info().name.c_str(), id, devices_[slot->device]->info().name.c_str());
  }
  --slot->loaded->requests;
  slot->request.inputs.clear();
  slot->request.outputs.clear();
  slot->id = 0;
  return status;
}

Status DeviceGroup::Cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  Slot* slot = FindSlot(id);
  if (slot == nullptr) return InvalidArgument("Cancel of request %u, which is unknown", id);
  slot->cancelled = true;
  return devices_[slot->device]->Cancel(slot->on_device);
}

Status DeviceGroup::Reset() {
  Status first;
  bool any = false;
  for (const auto& device : devices_) {
    Status status = device->Reset();
    any |= status.ok();
    if (first.ok()) first = std::move(status);
  }
  return any ? Status() : first;
}

}  // namespace atollrt
