// SPDX-License-Identifier: Apache-2.0
#include "driver/device/device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <tuple>
#include <utility>

#include "atoll/check.h"
#include "runtime/base/log.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kLongestTimeout{24 * 3600 * 1000};
// So many requests of executables that are on the chip go before one that would have to be
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

Status Cancelled(RequestId id) {
  return Status(StatusCode::kCancelled, Format("request %u was cancelled", id));
}

}  // namespace

const char* DeviceStateName(DeviceState state) {
  constexpr const char* kNames[] = {"Ready", "Recovering", "Fallback", "Lost"};
  return kNames[static_cast<size_t>(state)];
}

DeviceHealth operator+(const DeviceHealth& a, const DeviceHealth& b) {
  return {.failures = a.failures + b.failures,
          .resets = a.resets + b.resets,
          .reopenings = a.reopenings + b.reopenings,
          .losses = a.losses + b.losses,
          .replays = a.replays + b.replays,
          .fallbacks = a.fallbacks + b.fallbacks};
}

Status CheckFamily(const AnyExecutable& executable, const DeviceInfo& device) {
  if (executable.family == device.family) return {};
  return Unsupported("'%s' is compiled for %s devices, device %s is %s %s", executable.name.c_str(),
                     DeviceFamilyName(executable.family), device.name.c_str(),
                     device.family == DeviceFamily::kAtoll1 ? "an" : "a",
                     DeviceFamilyName(device.family));
}

Status CheckSameShape(const DeviceFigures& before, const DeviceFigures& now) {
  if (now.shape() == before.shape()) return {};
  return DeviceLost("another device than before answers: array %ux%u, %llu bytes of memory",
                    now.array_rows, now.array_columns,
                    static_cast<unsigned long long>(now.memory_bytes));
}

// A chip, and who waits for it.
struct Device::Place {
  std::unique_ptr<ChipKeeper> keeper;
  size_t index = 0;
  bool wire_held = false;
  std::vector<Slot*> queue;  // oldest first
  std::vector<Slot*> begun;  // that run next, in this order, whatever is queued
  Slot* running = nullptr;
  int in_progress = 0;  // queued, begun or running
  uint64_t turns = 0;   // requests taken off the queue so far
  int deferrals = 0;    // in a row
};

struct Device::Loaded {
  ExecutableId id = 0;
  std::shared_ptr<const AnyExecutable> executable;
  // Of each place: whether it is there, and when one of its requests was the last to run.
  std::vector<bool> is_on;
  std::vector<uint64_t> turn;
  size_t last_place = 0;
  int requests = 0;  // submitted and not completed
};

struct Device::Slot {
  enum class Phase { kFree, kQueued, kRunning, kDone };
  Phase phase = Phase::kFree;
  RequestId id = 0;
  Request request;
  Loaded* loaded = nullptr;
  Place* place = nullptr;
  std::vector<bool> lost_on;            // places that it was on when they were lost
  std::chrono::milliseconds timeout{};  // what it gets at the place where it is
  Deadline deadline;
  std::atomic<bool> cancelled = false;
  Status status;
  RequestReport report;
  int64_t submit_ns = 0;

  // From now on.
  void SetDeadline() {
    timeout = std::min(std::max(request.timeout, place->keeper->info().request_timeout_min),
                       kLongestTimeout);
    deadline = place->keeper->now() + timeout;
  }
};

Result<std::unique_ptr<Device>> Device::Create(std::vector<std::unique_ptr<ChipKeeper>> chips) {
  if (chips.empty()) return InvalidArgument("a device of no chips");
  const DeviceInfo& first = chips[0]->info();
  for (const auto& chip : chips) {
    const DeviceInfo& info = chip->info();
    if (info.shape() != first.shape()) {
      return InvalidArgument(
          "devices %s (%ux%u, %llu bytes) and %s (%ux%u, %llu bytes) differ: a group has devices "
          "of one kind",
          first.name.c_str(), first.array_rows, first.array_columns,
          static_cast<unsigned long long>(first.memory_bytes), info.name.c_str(), info.array_rows,
          info.array_columns, static_cast<unsigned long long>(info.memory_bytes));
    }
  }
  return std::unique_ptr<Device>(new Device(std::move(chips)));
}

Result<std::unique_ptr<Device>> Device::Join(std::vector<std::unique_ptr<Device>> devices) {
  std::vector<std::unique_ptr<ChipKeeper>> chips;
  for (auto& device : devices) {
    for (auto& place : device->places_) chips.push_back(std::move(place->keeper));
  }
  return Create(std::move(chips));
}

Device::Device(std::unique_ptr<Chip> chip, ChipKeeper::Options options)
    : Device([&] {
        std::vector<std::unique_ptr<ChipKeeper>> chips;
        chips.push_back(std::make_unique<ChipKeeper>(std::move(chip), std::move(options)));
        return chips;
      }()) {}

Device::Device(std::vector<std::unique_ptr<ChipKeeper>> chips) : info_(chips[0]->info()) {
  for (auto& chip : chips) {
    if (!places_.empty()) info_.name += "," + chip->info().name;
    places_.push_back(std::make_unique<Place>());
    places_.back()->keeper = std::move(chip);
    places_.back()->index = places_.size() - 1;
    places_.back()->begun.reserve(kJobsInFlightMax);
  }
}

Device::~Device() = default;

DeviceState Device::state() const {
  DeviceState best = DeviceState::kLost;
  for (const auto& place : places_) best = std::min(best, place->keeper->state());
  return best;
}

size_t Device::jobs_in_flight_max() const {
  size_t sum = 0;
  for (const auto& place : places_) sum += place->keeper->jobs_in_flight_max();
  return sum;
}

DeviceHealth Device::health() const {
  DeviceHealth sum;
  for (const auto& place : places_) sum = sum + place->keeper->health();
  return sum;
}

// Executables.

Device::Loaded* Device::FindLoaded(ExecutableId id) {
  const auto found = loaded_.find(id);
  return found != loaded_.end() ? found->second.get() : nullptr;
}

Status Device::Load(Lock& lock, Place* place, ExecutableId id,
                    const std::shared_ptr<const AnyExecutable>& executable,
                    const LoadOptions& options) {
  using WhileAway = ChipKeeper::WhileAway;
  lock.unlock();
  Status status = place->keeper->Load(id, executable, options, WhileAway::kFail);
  lock.lock();
  if (status.code() != StatusCode::kDeviceLost) return status;
  // It may be back.
  changed_.wait(lock, [place] { return !place->wire_held; });
  place->wire_held = true;
  lock.unlock();
  place->keeper->Look();
  status = place->keeper->Load(id, executable, options, WhileAway::kOnStandIn);
  lock.lock();
  place->wire_held = false;
  changed_.notify_all();
  return status;
}

Result<ExecutableId> Device::Load(std::shared_ptr<const AnyExecutable> executable,
                                  const LoadOptions& options) {
  if (executable == nullptr) return InvalidArgument("Load of no executable");
  auto loaded = std::make_unique<Loaded>();
  loaded->executable = std::move(executable);
  loaded->is_on.resize(places_.size());
  loaded->turn.resize(places_.size());
  Lock lock(mutex_);
  do {
    ++last_executable_;
  } while (last_executable_ == 0 || FindLoaded(last_executable_) != nullptr);
  const ExecutableId id = loaded->id = last_executable_;
  Status lost;
  bool anywhere = false;
  std::vector<Place*> away;
  for (const auto& place : places_) {
    if (options.stage >= 0 && static_cast<size_t>(options.stage) % places_.size() != place->index) {
      continue;
    }
    Status status = Load(lock, place.get(), id, loaded->executable, options);
    if (status.ok()) {
      anywhere = loaded->is_on[place->index] = true;
    } else {
      lost = std::move(status);
      if (lost.code() != StatusCode::kDeviceLost) break;
      away.push_back(place.get());
    }
  }
  lock.unlock();  // a chip that is being brought back keeps what follows waiting
  if (!anywhere || (!lost.ok() && lost.code() != StatusCode::kDeviceLost)) {
    for (const auto& place : places_) {
      if (loaded->is_on[place->index]) place->keeper->Unload(id);
    }
    return lost;
  }
  for (Place* const place : away) {
    const Status later =
        place->keeper->Load(id, loaded->executable, options, ChipKeeper::WhileAway::kLater);
    loaded->is_on[place->index] = later.ok();
  }
  lock.lock();
  loaded_[id] = std::move(loaded);
  return id;
}

Status Device::Unload(ExecutableId id) {
  Lock lock(mutex_);
  Loaded* const loaded = FindLoaded(id);
  if (loaded == nullptr) return InvalidArgument("Unload of executable %u, which is not loaded", id);
  if (loaded->requests > 0) {
    return Status(StatusCode::kDeviceBusy,
                  Format("Unload of '%s' with %d requests in progress: wait for them first",
                         loaded->executable->name.c_str(), loaded->requests));
  }
  const auto last = loaded_.extract(id);
  lock.unlock();
  for (const auto& place : places_) {
    if (last.mapped()->is_on[place->index]) place->keeper->Unload(id);
  }
  return {};
}

Status Device::Reset() {
  Status first;
  Lock lock(mutex_);
  for (const auto& place : places_) {
    changed_.wait(lock, [&] { return !place->wire_held; });
    place->wire_held = true;
    lock.unlock();
    Status status = place->keeper->Reset();
    lock.lock();
    Requeue(place.get());
    place->wire_held = false;
    if (first.ok()) first = std::move(status);
    changed_.notify_all();
  }
  return first;
}

// Memory.

Status Device::RegisterMemory(const HostMemory& memory) {
  for (size_t i = 0; i < places_.size(); ++i) {
    Status status = places_[i]->keeper->RegisterMemory(memory);
    if (status.ok()) continue;
    while (i-- > 0) places_[i]->keeper->UnregisterMemory(memory.bytes);
    return status;
  }
  return {};
}

void Device::UnregisterMemory(std::span<uint8_t> memory) {
  for (const auto& place : places_) place->keeper->UnregisterMemory(memory);
}

// Requests.

Device::Slot* Device::FindSlot(RequestId id) {
  for (const auto& slot : slots_) {
    if (slot->phase != Slot::Phase::kFree && slot->id == id) return slot.get();
  }
  return nullptr;
}

Device::Slot* Device::TakeFreeSlot() {
  for (const auto& slot : slots_) {
    if (slot->phase == Slot::Phase::kFree) return slot.get();
  }
  slots_.push_back(std::make_unique<Slot>());
  for (const auto& place : places_) place->queue.reserve(slots_.size());
  return slots_.back().get();
}

// To the best place with the fewest requests. kDeviceLost if there is none left.
Status Device::Enqueue(Slot* slot) {
  Status lost;
  for (;;) {
    Place* best = nullptr;
    const auto score = [&](const Place& place) {
      return std::tuple(place.keeper->expected_state(), place.in_progress,
                        place.index != slot->loaded->last_place);
    };
    for (const auto& place : places_) {
      if (!slot->loaded->is_on[place->index] || slot->lost_on[place->index]) continue;
      if (best == nullptr || score(*place) < score(*best)) best = place.get();
    }
    if (best == nullptr && lost.ok()) {
      return DeviceLost("no chip of device %s is left", info_.name.c_str());
    }
    if (best == nullptr) return lost;
    lost = best->keeper->CheckThere("Submit");
    if (lost.ok()) {
      slot->phase = Slot::Phase::kQueued;
      slot->place = best;
      slot->loaded->last_place = best->index;
      slot->SetDeadline();
      ++best->in_progress;
      best->queue.push_back(slot);
      changed_.notify_all();
      return {};
    }
    slot->lost_on[best->index] = true;
  }
}

Result<RequestId> Device::Submit(const Request& request) {
  const std::lock_guard lock(mutex_);
  Loaded* loaded = FindLoaded(request.executable);
  if (loaded == nullptr) {
    return InvalidArgument("Submit for executable %u, which is not loaded", request.executable);
  }
  const AnyExecutable& executable = *loaded->executable;
  ATOLL_RETURN_IF_ERROR(CheckSizes(executable, "input", executable.inputs, request.inputs));
  ATOLL_RETURN_IF_ERROR(CheckSizes(executable, "output", executable.outputs, request.outputs));
  Slot* slot = TakeFreeSlot();
  slot->request = request;  // into memory that the slot has from earlier requests
  slot->loaded = loaded;
  slot->lost_on.assign(places_.size(), false);
  slot->cancelled = false;
  slot->report = {};
  slot->submit_ns = MonotonicNs();
  ATOLL_RETURN_IF_ERROR(Enqueue(slot));
  do {
    ++last_request_;
  } while (last_request_ == 0 || FindSlot(last_request_) != nullptr);
  slot->id = last_request_;
  ++loaded->requests;
  return slot->id;
}

Status Device::Wait(RequestId id, RequestReport* report) {
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
    Place* const place = slot->place;
    if (!place->wire_held && place->queue.size() == 1) {  // nothing to look at first
      RunNext(lock, place);
      continue;
    }
    // While the chip is in trouble, or is about to be, as a request has run for too long, those
    // behind it wait: it will get another chance, and they theirs.
    const Deadline now = place->keeper->now();
    const bool is_late =
        place->running != nullptr && now >= place->running->deadline && place->keeper->can_reopen();
    const bool counts =
        slot->phase == Slot::Phase::kQueued && !is_late && !place->keeper->in_trouble();
    if (counts && now >= slot->deadline) {
      Complete(slot, Timeout("request %u for '%s' was still queued after %lld ms", id,
                             slot->loaded->executable->name.c_str(),
                             static_cast<long long>(slot->timeout.count())));
    } else if (!place->wire_held) {
      RunNext(lock, place);
    } else if (counts) {
      changed_.wait_until(lock, slot->deadline);
    } else {
      changed_.wait(lock);
    }
  }
}

Status Device::Cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  Slot* slot = FindSlot(id);
  if (slot == nullptr) return InvalidArgument("Cancel of request %u, which is unknown", id);
  if (slot->phase == Slot::Phase::kQueued) {
    Complete(slot, Cancelled(id));
  } else if (slot->phase == Slot::Phase::kRunning) {
    slot->cancelled = true;
  }
  return {};
}

// The one place where a request completes.
void Device::Complete(Slot* slot, Status status) {
  ATOLL_CHECK(slot->phase == Slot::Phase::kQueued || slot->phase == Slot::Phase::kRunning);
  std::erase(slot->place->queue, slot);
  --slot->place->in_progress;
  slot->phase = Slot::Phase::kDone;
  slot->status = std::move(status);
  slot->request.inputs.clear();
  slot->request.outputs.clear();
  --slot->loaded->requests;
  slot->loaded = nullptr;
  slot->place = nullptr;
  changed_.notify_all();
}

// Takes the request that runs next (device.h) off the queue.
Device::Slot* Device::TakeNext(Place* place, bool* next_is_resident) {
  const auto best_of = [place](const auto& may_run) {
    Slot* best = nullptr;
    for (Slot* slot : place->queue) {
      if (!may_run(*slot)) continue;
      if (best == nullptr || slot->request.priority > best->request.priority ||
          (slot->request.priority == best->request.priority &&
           slot->loaded->turn[place->index] < best->loaded->turn[place->index])) {
        best = slot;
      }
    }
    return best;
  };
  const auto is_resident = [place](const Slot& slot) {
    return place->keeper->IsResident(slot.loaded->id);
  };
  Slot* next = best_of([](const Slot&) { return true; });
  *next_is_resident = is_resident(*next);
  if (place->queue.size() == 1 || *next_is_resident) {
    place->deferrals = 0;
  } else {
    Slot* const resident = best_of([&](const Slot& slot) {
      return slot.request.priority == next->request.priority && is_resident(slot);
    });
    const bool defers = resident != nullptr && place->deferrals < kDeferralsMax;
    place->deferrals = defers ? place->deferrals + 1 : 0;
    if (defers) next = resident;
    *next_is_resident = defers;
  }
  std::erase(place->queue, next);
  next->loaded->turn[place->index] = ++place->turns;
  return next;
}

// Completes the request if it should have begun by now.
bool Device::IsTooLate(Slot* slot) {
  if (slot->place->keeper->now() < slot->deadline) {
    slot->phase = Slot::Phase::kRunning;
    slot->report.queue_ns = MonotonicNs() - slot->submit_ns;
    return false;
  }
  Complete(slot, Timeout("request %u for '%s' did not start within %lld ms", slot->id,
                         slot->loaded->executable->name.c_str(),
                         static_cast<long long>(slot->timeout.count())));
  return true;
}

// Takes off the queue what the chip may begin while another request runs. Behind one that is not on
// the chip comes nothing yet: what is there then, only its upload will tell.
void Device::BeginNext(Place* place) {
  const size_t others_max = place->keeper->jobs_in_flight_max() - 1;
  bool is_resident = true;
  while (is_resident && !place->queue.empty() && place->begun.size() < others_max) {
    Slot* const next = TakeNext(place, &is_resident);
    if (!IsTooLate(next)) place->begun.push_back(next);
  }
}

// After a failure nothing has begun.
void Device::Requeue(Place* place) {
  place->queue.insert(place->queue.begin(), place->begun.begin(), place->begun.end());
  for (Slot* const slot : place->begun) {
    slot->phase = Slot::Phase::kQueued;
    if (slot->cancelled) Complete(slot, Cancelled(slot->id));
  }
  place->begun.clear();
}

void Device::RunNext(Lock& lock, Place* place) {
  bool is_resident = true;
  Slot* slot = nullptr;
  if (!place->begun.empty()) {
    slot = place->begun.front();
    place->begun.erase(place->begun.begin());
  } else {
    slot = TakeNext(place, &is_resident);
    if (IsTooLate(slot)) return;
  }
  if (is_resident) BeginNext(place);
  place->running = slot;
  place->wire_held = true;
  const auto job_of = [](const Slot& one) {
    return ChipKeeper::Job{.executable = one.loaded->id,
                           .request = one.id,
                           .inputs = one.request.inputs,
                           .outputs = one.request.outputs,
                           .timeout = one.timeout,
                           .deadline = one.deadline,
                           .priority = one.request.priority,
                           .cancelled = &one.cancelled};
  };
  ChipKeeper::Job job = job_of(*slot);
  std::array<ChipKeeper::Job, kJobsInFlightMax> next;
  std::ranges::transform(place->begun, next.begin(), [&](Slot* one) { return job_of(*one); });
  const size_t next_count = place->begun.size();
  job.may_go_elsewhere = std::ranges::any_of(places_, [&](const auto& other) {
    return other.get() != place && slot->loaded->is_on[other->index] &&
           !slot->lost_on[other->index] && other->keeper->state() == DeviceState::kReady;
  });
  lock.unlock();
  Status status = place->keeper->Run(job, std::span(next).first(next_count), &slot->report);
  lock.lock();
  place->wire_held = false;
  place->running = nullptr;
  changed_.notify_all();
  if (!status.ok() || slot->report.on_fallback) Requeue(place);
  // What waited for a chip in trouble waits from now on.
  if (!status.ok() || slot->report.replays > 0) {
    for (Slot* other : place->queue) other->SetDeadline();
    for (Slot* other : place->begun) other->SetDeadline();
  }
  place->keeper->EndTrouble();
  if (slot->cancelled) {
    status =
        Status(StatusCode::kCancelled, Format("request %u was cancelled while it ran", slot->id));
  } else if (status.code() == StatusCode::kDeviceLost) {
    // Elsewhere, if there is an elsewhere; otherwise what this one said is what there is to say.
    slot->lost_on[place->index] = true;
    --place->in_progress;
    if (Enqueue(slot).ok()) {
      Log(LogSeverity::kWarning, "device %s: request %u goes to device %s",
          place->keeper->info().name.c_str(), slot->id, slot->place->keeper->info().name.c_str());
      return;
    }
    ++place->in_progress;
  }
  Complete(slot, std::move(status));
}

}  // namespace atollrt
