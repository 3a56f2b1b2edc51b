// SPDX-License-Identifier: Apache-2.0
#include "driver/device/chip_keeper.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "atoll/check.h"
#include "runtime/base/log.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

// A program that faults twice is at fault itself.
constexpr int kFaultsMax = 2;

bool IsTransition(DeviceState from, DeviceState to) {
  return (from == DeviceState::kRecovering) != (to == DeviceState::kRecovering);
}

// The conversation with the chip is over, however well it may be.
bool IsBrokenOff(const Status& status) {
  return status.code() == StatusCode::kDeviceLost || status.code() == StatusCode::kCancelled;
}

// This computer has not what a run takes, and will not have it the next time either.
bool IsLackOfMemory(const Status& status) {
  return status.code() == StatusCode::kResourceExhausted;
}

// What a failed run is to those who asked for it: a fault, a deadline or a lack of memory keeps its
// code; whatever else the link said, the device was lost.
Status Outcome(const Status& status, RequestId request, const AnyExecutable& executable) {
  const bool keeps_code = status.code() == StatusCode::kCorruptModel ||
                          status.code() == StatusCode::kTimeout || IsLackOfMemory(status);
  return Status(keeps_code ? status.code() : StatusCode::kDeviceLost, status.message())
      .WithContext(Format("request %u for '%s'", request, executable.name.c_str()));
}

}  // namespace

struct ChipKeeper::Kept {
  ExecutableId id = 0;
  std::shared_ptr<const AnyExecutable> executable;
  LoadOptions options;
  std::unique_ptr<PreparedExecutable> on_chip{};      // if there is one
  std::unique_ptr<PreparedExecutable> on_stand_in{};  // once it was needed there
};

// A chip with all that is kept.
struct ChipKeeper::Reopened {
  std::unique_ptr<Chip> chip;
  std::vector<std::unique_ptr<PreparedExecutable>> prepared;  // in the order of kept_
};

namespace {

Chip::Job ChipJob(const ChipKeeper::Job& job, const PreparedExecutable& prepared,
                  Deadline deadline) {
  return {.prepared = &prepared,
          .request_id = job.request,
          .inputs = job.inputs,
          .outputs = job.outputs,
          .deadline = deadline,
          .priority = job.priority};
}

Result<std::unique_ptr<PreparedExecutable>> Prepare(
    const Chip& chip, ExecutableId id, const std::shared_ptr<const AnyExecutable>& executable,
    const LoadOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<PreparedExecutable> prepared, chip.Prepare(executable));
  prepared->id = id;
  prepared->residency_set = options.residency_set;
  return prepared;
}

}  // namespace

ChipKeeper::ChipKeeper(std::unique_ptr<Chip> chip, Options options)
    : options_(std::move(options)), info_(chip->info()) {
  chip_ = {.chip = std::move(chip),
           .activity = ActivityPublisher::Create(options_.activity_directory, info_)};
  if (options_.bus_generation) generation_seen_ = options_.bus_generation();
}

ChipKeeper::~ChipKeeper() {
  // Requests that nobody waits for may still use what goes in front of the chip.
  if (chip_.chip != nullptr) chip_.chip->Abandon();
}

DeviceState ChipKeeper::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

DeviceHealth ChipKeeper::health() const {
  const std::lock_guard lock(mutex_);
  return chip_.chip == nullptr ? health_ : health_ + chip_.chip->health();
}

void ChipKeeper::MoveTo(DeviceState state) {
  ATOLL_CHECK(IsTransition(state_, state));
  state_ = state;
  changed_.notify_all();
}

void ChipKeeper::WaitUntilRecovered(Lock& lock) {
  changed_.wait(lock, [this] { return state_ != DeviceState::kRecovering; });
}

// Of a chip that was given up. Without word from the bus it is looked for in each run.
bool ChipKeeper::MayBeBack() const {
  return can_reopen() &&
         (!options_.bus_generation || options_.bus_generation() != generation_seen_ ||
          options_.now() >= next_look_);
}

Status ChipKeeper::Away(const char* call) const {
  if (can_reopen()) {
    return DeviceLost("%s while device %s is away: %s", call, info_.name.c_str(),
                      loss_.message().c_str());
  }
  return DeviceLost("%s in state %s of device %s, needs state %s: open it again", call,
                    DeviceStateName(state_), info_.name.c_str(),
                    DeviceStateName(DeviceState::kReady));
}

DeviceState ChipKeeper::expected_state() const {
  const std::lock_guard lock(mutex_);
  const bool given_up = state_ == DeviceState::kFallback || state_ == DeviceState::kLost;
  return given_up && options_.bus_generation && MayBeBack() ? DeviceState::kReady : state_;
}

Status ChipKeeper::CheckThere(const char* call) const {
  const std::lock_guard lock(mutex_);
  return state_ != DeviceState::kLost || MayBeBack() ? Status() : Away(call);
}

// Executables.

Status ChipKeeper::Load(ExecutableId id, std::shared_ptr<const AnyExecutable> executable,
                        const LoadOptions& options, WhileAway while_away) {
  Lock lock(mutex_);
  WaitUntilRecovered(lock);
  Kept kept{.id = id, .executable = std::move(executable), .options = options};
  if (state_ == DeviceState::kReady) {
    // It may take long, and others use the chip meanwhile; nobody takes it away (LookOnBus).
    ++preparing_;
    const Chip& chip = *chip_.chip;
    lock.unlock();
    auto prepared = Prepare(chip, id, kept.executable, options);
    lock.lock();
    --preparing_;
    changed_.notify_all();
    ATOLL_ASSIGN_OR_RETURN(kept.on_chip, std::move(prepared));
  } else if (state_ == DeviceState::kFallback && while_away == WhileAway::kOnStandIn) {
    Kept* const added = &(kept_[id] = std::move(kept));
    lock.unlock();
    Status status = PrepareOnStandIn(added);
    lock.lock();
    if (!status.ok()) kept_.erase(id);
    return status;
  } else if (!can_reopen() || while_away != WhileAway::kLater) {
    return Away("Load");
  }
  kept_[id] = std::move(kept);
  return {};
}

void ChipKeeper::Unload(ExecutableId id) {
  Lock lock(mutex_);
  WaitUntilRecovered(lock);
  const Kept& kept = kept_.at(id);
  if (kept.on_chip != nullptr) chip_.chip->Forget(*kept.on_chip);
  if (kept.on_stand_in != nullptr) stand_in_.chip->Forget(*kept.on_stand_in);
  kept_.erase(id);
}

bool ChipKeeper::IsResident(ExecutableId id) const {
  const std::lock_guard lock(mutex_);
  const Kept& kept = kept_.at(id);
  if (state_ == DeviceState::kReady) return chip_.chip->IsResident(*kept.on_chip);
  return kept.on_stand_in != nullptr && stand_in_.chip->IsResident(*kept.on_stand_in);
}

// Memory.

Status ChipKeeper::RegisterMemory(const HostMemory& memory) {
  Lock lock(mutex_);
  WaitUntilRecovered(lock);
  if (state_ == DeviceState::kReady) {
    Status status = chip_.chip->RegisterMemory(memory);
    if (!status.ok() && status.code() != StatusCode::kDeviceLost) return status;
  }
  registered_.push_back(memory);
  return {};
}

void ChipKeeper::UnregisterMemory(std::span<uint8_t> memory) {
  Lock lock(mutex_);
  WaitUntilRecovered(lock);
  const auto found = std::ranges::find_if(registered_, [memory](const HostMemory& other) {
    return other.bytes.data() == memory.data() && other.bytes.size() == memory.size();
  });
  if (found == registered_.end()) return;
  registered_.erase(found);
  if (chip_.chip != nullptr) chip_.chip->UnregisterMemory(memory);
}

// Runs.

size_t ChipKeeper::jobs_in_flight_max() const {
  const std::lock_guard lock(mutex_);
  return state_ == DeviceState::kReady ? chip_.chip->jobs_in_flight_max() : 1;
}

ChipKeeper::Kept* ChipKeeper::FindKept(ExecutableId id) {
  const std::lock_guard lock(mutex_);
  return &kept_.at(id);
}

void ChipKeeper::Count(uint64_t DeviceHealth::*event) {
  const std::lock_guard lock(mutex_);
  ++(health_.*event);
}

Status ChipKeeper::Run(const Job& job, std::span<const Job> next, RequestReport* report) {
  // They stay where they are while they have requests.
  Kept* const kept = FindKept(job.executable);
  std::array<Kept*, kJobsInFlightMax> kept_next{};
  for (size_t i = 0; i < next.size(); ++i) kept_next[i] = FindKept(next[i].executable);
  const bool leaves_at_once = options_.leaves_at_once && job.may_go_elsewhere;
  int failures = 0;
  int faults = 0;  // of the program, among these
  int looks = 0;   // for a chip that was given up
  Deadline deadline = job.deadline;
  report->replays = 0;
  for (;;) {
    if (*job.cancelled && (failures > 0 || state_ != DeviceState::kReady)) {
      return Status(StatusCode::kCancelled, Format("request %u was cancelled", job.request));
    }
    if (state_ != DeviceState::kReady) {
      if (SeenAgain(looks)) {
        ++looks;
        LookAgain();
        continue;
      }
      const bool goes_elsewhere = job.may_go_elsewhere && (failures == 0 || leaves_at_once);
      if (state_ == DeviceState::kFallback && !goes_elsewhere) {
        return RunOnStandIn(kept, job, report);
      }
      return DeviceLost("request %u for '%s': device %s is away: %s", job.request,
                        kept->executable->name.c_str(), info_.name.c_str(),
                        loss_.message().c_str());
    }
    std::array<Chip::Job, kJobsInFlightMax> ahead;
    for (size_t i = 0; i < next.size(); ++i) {
      ahead[i] = ChipJob(next[i], *kept_next[i]->on_chip, next[i].deadline);
    }
    const Status status = RunOn(chip_, ChipJob(job, *kept->on_chip, deadline),
                                std::span(ahead).first(next.size()), report);
    if (status.ok()) return {};
    in_trouble_ = true;
    ++failures;
    Count(&DeviceHealth::failures);
    if (status.code() == StatusCode::kCorruptModel) ++faults;
    BringBack(status, !leaves_at_once);
    if (state_ == DeviceState::kLost) ++looks;  // it has just been looked for
    Status outcome = Outcome(status, job.request, *kept->executable);
    const bool gives_up = failures >= options_.attempts_max || IsLackOfMemory(status);
    if (gives_up && options_.on_loss == OnDeviceLoss::kFallback && options_.open_stand_in &&
        !*job.cancelled) {
      Log(LogSeverity::kWarning, "device %s: request %u has failed %d times and goes elsewhere",
          info_.name.c_str(), job.request, failures);
      return RunOnStandIn(kept, job, report);
    }
    if (gives_up || !can_reopen() || options_.on_loss == OnDeviceLoss::kFail ||
        faults >= kFaultsMax) {
      return outcome;
    }
    ++report->replays;
    deadline = options_.now() + job.timeout;
    if (state_ == DeviceState::kReady) {
      Count(&DeviceHealth::replays);
      Log(LogSeverity::kInfo, "device %s: request %u is sent again after: %s", info_.name.c_str(),
          job.request, outcome.message().c_str());
    }
  }
}

Status ChipKeeper::RunOn(const Published& where, const Chip::Job& job,
                         std::span<const Chip::Job> ahead, RequestReport* report) {
  RequestReport anew;  // but for what is known before a run, and of earlier attempts
  anew.queue_ns = report->queue_ns;
  anew.replays = report->replays;
  *report = anew;
  const int64_t start_ns = MonotonicNs();
  if (where.activity != nullptr) where.activity->Begin(start_ns);
  Status status = where.chip->Run(job, ahead, report);
  if (where.activity != nullptr) {
    where.activity->End({.start_ns = start_ns,
                         .end_ns = MonotonicNs(),
                         .failed = !status.ok(),
                         .device_cycles = report->device_cycles,
                         .macs = status.ok() ? job.prepared->macs : 0,
                         .bytes_to_device = report->bytes_to_device,
                         .bytes_from_device = report->bytes_from_device,
                         .memory_used_bytes = where.chip->memory_used_bytes()});
  }
  return status;
}

// Elsewhere.

Status ChipKeeper::PrepareOnStandIn(Kept* kept) {
  if (stand_in_.chip == nullptr) {
    Published opened;
    ATOLL_ASSIGN_OR_RETURN(opened.chip, options_.open_stand_in());
    const DeviceInfo& info = opened.chip->info();
    opened.activity = ActivityPublisher::Create(options_.activity_directory, info);
    const std::lock_guard lock(mutex_);
    stand_in_ = std::move(opened);
    Log(LogSeverity::kWarning, "device %s: requests go to %s until it is there again",
        info_.name.c_str(), info_.emulated ? "another emulator" : info.name.c_str());
  }
  if (kept->on_stand_in == nullptr) {
    ATOLL_ASSIGN_OR_RETURN(auto prepared,
                           Prepare(*stand_in_.chip, kept->id, kept->executable, kept->options));
    const std::lock_guard lock(mutex_);
    kept->on_stand_in = std::move(prepared);
  }
  return {};
}

Status ChipKeeper::RunOnStandIn(Kept* kept, const Job& job, RequestReport* report) {
  ATOLL_RETURN_IF_ERROR(PrepareOnStandIn(kept));
  const auto timeout = std::max(job.timeout, stand_in_.chip->info().request_timeout_min);
  const Status status =
      RunOn(stand_in_, ChipJob(job, *kept->on_stand_in, options_.now() + timeout), {}, report);
  if (!status.ok()) {
    (void)stand_in_.chip->Recover().ok();
    return Outcome(status, job.request, *kept->executable);
  }
  report->on_fallback = true;
  Count(&DeviceHealth::fallbacks);
  return {};
}

// Back again.

bool ChipKeeper::SeenAgain(int looks) const {
  if (!can_reopen()) return false;
  if (looks >= options_.attempts_max) return false;  // one that comes and goes all the time
  if (looks == 0 && options_.now() >= next_look_) return true;
  if (!options_.bus_generation) return state_ == DeviceState::kLost && looks == 0;
  return options_.bus_generation() != generation_seen_;
}

void ChipKeeper::Look() {
  if (state_ != DeviceState::kReady && SeenAgain(0)) LookAgain();
}

void ChipKeeper::LookAgain() {
  const bool something_changed =
      !options_.bus_generation || options_.bus_generation() != generation_seen_;
  {
    const std::lock_guard lock(mutex_);
    MoveTo(DeviceState::kRecovering);
  }
  LookOnBus(
      options_.now() + (something_changed ? options_.lookup_timeout : std::chrono::milliseconds(0)),
      /*was_ready=*/false);
}

Status ChipKeeper::Reset() {
  if (state_ != DeviceState::kReady) return CheckThere("Reset");
  chip_.chip->Abandon();
  Status status = chip_.chip->Reopen();
  if (status.ok()) {
    Count(&DeviceHealth::resets);
    return status;
  }
  BringBack({StatusCode::kDeviceLost, status.message()}, /*may_wait=*/true);
  const std::lock_guard lock(mutex_);
  return state_ == DeviceState::kReady ? Status() : loss_;
}

// After a run that failed for `reason`.
void ChipKeeper::BringBack(const Status& reason, bool may_wait) {
  Status loss = reason;
  if (!IsBrokenOff(reason)) {
    Log(LogSeverity::kWarning, "device %s: reset after %s", info_.name.c_str(),
        reason.message().c_str());
    loss = chip_.chip->Recover();
    if (loss.ok()) return Count(&DeviceHealth::resets);
  }
  Log(LogSeverity::kWarning, "device %s does not answer: %s", info_.name.c_str(),
      loss.message().c_str());
  {
    const std::lock_guard lock(mutex_);
    MoveTo(DeviceState::kRecovering);
    if (!can_reopen()) {
      Log(LogSeverity::kError, "device %s is lost: %s", info_.name.c_str(), loss.message().c_str());
      loss_ = loss;
      MoveTo(DeviceState::kLost);
      return;
    }
  }
  may_wait &= options_.on_loss != OnDeviceLoss::kFail;
  const Deadline now = options_.now();
  if (chip_.chip->Reopen().ok()) {
    const std::lock_guard lock(mutex_);
    ++health_.resets;
    MoveTo(DeviceState::kReady);
    return;
  }
  LookOnBus(may_wait ? now + options_.recovery_timeout : now, /*was_ready=*/true);
}

// In Recovering: opens the chip anew, or goes to Fallback or Lost.
void ChipKeeper::LookOnBus(Deadline deadline, bool was_ready) {
  if (chip_.chip != nullptr) {
    Log(LogSeverity::kWarning, "device %s: looking for it on the bus", info_.name.c_str());
    std::unique_ptr<Chip> old;
    {
      Lock lock(mutex_);
      changed_.wait(lock, [this] { return preparing_ == 0; });
      for (auto& [id, kept] : kept_) kept.on_chip = nullptr;
      old = std::move(chip_.chip);
    }
    old = nullptr;  // only then can it be opened again
  }
  const uint64_t generation = options_.bus_generation ? options_.bus_generation() : 0;
  Result<Reopened> reopened = Reopen(deadline);
  const std::lock_guard lock(mutex_);
  generation_seen_ = generation;
  if (reopened.ok()) {
    chip_.chip = std::move(reopened->chip);
    size_t i = 0;
    for (auto& [id, kept] : kept_) kept.on_chip = std::move(reopened->prepared[i++]);
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
  const bool has_stand_in =
      options_.on_loss == OnDeviceLoss::kFallback && options_.open_stand_in != nullptr;
  MoveTo(has_stand_in ? DeviceState::kFallback : DeviceState::kLost);
}

// Reads kept_ and registered_ without the mutex: nothing changes them in Recovering.
Result<ChipKeeper::Reopened> ChipKeeper::Reopen(Deadline deadline) const {
  Reopened reopened;
  ATOLL_ASSIGN_OR_RETURN(reopened.chip, options_.reopen(deadline));
  ATOLL_RETURN_IF_ERROR(CheckSameShape(info_, reopened.chip->info()));
  for (const auto& [id, kept] : kept_) {
    ATOLL_ASSIGN_OR_RETURN(auto prepared,
                           Prepare(*reopened.chip, id, kept.executable, kept.options));
    reopened.prepared.push_back(std::move(prepared));
  }
  // What cannot be given to the chip is copied, and the chip says so.
  for (const HostMemory& memory : registered_) {
    (void)reopened.chip->RegisterMemory(memory).ok();
  }
  return reopened;
}

}  // namespace atollrt
