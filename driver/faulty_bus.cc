// SPDX-License-Identifier: Apache-2.0
#include "driver/faulty_bus.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/protocol.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

using std::chrono::milliseconds;

// With a clock that is not the real one, the device below gets so much real time for a call.
constexpr milliseconds kInnerPatience{20};
// How long a device is there that comes back twice.
constexpr milliseconds kShortVisit{20};
// What happens at random takes no longer.
constexpr int kRandomDelayMs = 100;
constexpr int kRandomAbsenceMs = 300;

constexpr FaultWhat kAllWhats[] = {FaultWhat::kDrop,    FaultWhat::kDelay,   FaultWhat::kStall,
                                   FaultWhat::kShorten, FaultWhat::kCorrupt, FaultWhat::kUnplug};

}  // namespace

// What all transports of a bus share: the plan, how far it is, and what is away.
class FaultyBus::State {
 public:
  State(std::shared_ptr<UsbBus> inner, FaultPlan plan, Options options)
      : inner_(std::move(inner)),
        plan_(std::move(plan)),
        options_(std::move(options)),
        random_(plan_.seed) {}

  UsbBus& inner() { return *inner_; }
  const FaultPlan& plan() const { return plan_; }
  bool real_time() const { return options_.sleep_until == nullptr; }
  Deadline now() const { return options_.now(); }
  void SleepUntil(Deadline time) const {
    if (options_.sleep_until != nullptr) {
      options_.sleep_until(time);
    } else {
      std::this_thread::sleep_until(time);
    }
  }
  // What the device below gets for a call.
  Deadline InnerDeadline(Deadline deadline) const {
    if (real_time()) return deadline;
    const auto remaining = std::max(deadline - now(), Clock::duration::zero());
    return Clock::now() + std::min<Clock::duration>(remaining, kInnerPatience);
  }
  // The device below had its time and did not answer.
  void PassTime(Deadline deadline) const {
    if (!real_time()) SleepUntil(deadline);
  }
  // A transfer got lost on the way.
  Status Lose(Deadline deadline) const {
    SleepUntil(std::min(deadline, now() + options_.patience));
    return Timeout("the transfer was lost on the way");
  }

  // What goes wrong in the call that begins now, if anything does. `size` bytes were asked for.
  std::optional<PlannedFault> Next(FaultWhere where, size_t size) {
    const std::lock_guard lock(mutex_);
    const uint64_t number = ++counts_[static_cast<size_t>(where)];
    std::optional<PlannedFault> fault;
    for (const PlannedFault& candidate : plan_.faults) {
      if (candidate.where == where && candidate.number == number) fault = candidate;
    }
    if (!fault.has_value() && plan_.random && Real() < plan_.probability) {
      fault = RandomFault(where, number, size);
    }
    if (!fault.has_value()) return {};
    ++faults_;
    Log(LogSeverity::kInfo, "fault: %s", Describe(*fault).c_str());
    return fault;
  }

  // Presence. Ports are known by their paths on the bus below.
  struct Place {
    std::string path;  // that the device has now
    bool away = false;
    uint64_t visits = 0;  // changes each time that it goes
  };
  Place Find(const std::string& inner_path) {
    const std::lock_guard lock(mutex_);
    return Update(inner_path).place;
  }
  std::string InnerPath(const std::string& path) {
    const std::lock_guard lock(mutex_);
    for (const auto& [inner_path, port] : ports_) {
      if (port.place.path == path) return inner_path;
    }
    return path;
  }
  void Unplug(const std::string& inner_path, const PlannedFault& fault) {
    const std::lock_guard lock(mutex_);
    Port& port = Update(inner_path);
    if (port.place.away) return;
    port.times_more = fault.replug == Replug::kTwice ? 1 : 0;
    port.absence = fault.replug == Replug::kNever ? std::nullopt : std::optional(fault.time);
    if (fault.replug == Replug::kMoved)
      port.place.path = Format("%s.%d", inner_path.c_str(), ++moves_);
    Leave(&port, now());
  }
  // A number for all that has happened to presence so far.
  uint64_t changes() {
    const std::lock_guard lock(mutex_);
    for (auto& [inner_path, port] : ports_) Update(inner_path);
    return changes_;
  }
  // When something comes or goes next.
  std::optional<Deadline> NextChange() {
    const std::lock_guard lock(mutex_);
    std::optional<Deadline> next;
    for (const auto& [inner_path, port] : ports_) {
      if (port.changes_at.has_value() && (!next.has_value() || *port.changes_at < *next)) {
        next = port.changes_at;
      }
    }
    return next;
  }

  uint64_t faults() const {
    const std::lock_guard lock(mutex_);
    return faults_;
  }

 private:
  struct Port {
    Place place;
    std::optional<milliseconds> absence;  // how long it is away each time; nothing: for ever
    std::optional<Deadline> changes_at;   // when it comes back or goes again
    int times_more = 0;                   // that it will go
  };

  // All with the mutex held.
  Port& Update(const std::string& inner_path) {
    const auto [found, is_new] = ports_.try_emplace(inner_path);
    Port& port = found->second;
    if (is_new) port.place.path = inner_path;
    while (port.changes_at.has_value() && *port.changes_at <= now()) {
      const Deadline at = *std::exchange(port.changes_at, std::nullopt);
      if (!port.place.away) {
        Leave(&port, at);
        continue;
      }
      port.place.away = false;
      ++changes_;
      if (port.times_more > 0) {
        --port.times_more;
        port.changes_at = at + kShortVisit;
      }
    }
    return port;
  }
  void Leave(Port* port, Deadline at) {
    port->place.away = true;
    ++port->place.visits;
    ++changes_;
    if (port->absence.has_value()) port->changes_at = at + *port->absence;
  }

  uint64_t Random() {  // splitmix64 (Steele, Lea, Flood 2014)
    random_ += 0x9e3779b97f4a7c15u;
    uint64_t z = random_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double Real() { return static_cast<double>(Random() >> 11) * 0x1p-53; }
  // What a register says is left alone: nobody could notice.
  PlannedFault RandomFault(FaultWhere where, uint64_t number, size_t size) {
    PlannedFault fault{.where = where, .number = number};
    do {
      fault.what = kAllWhats[Random() % std::size(kAllWhats)];
    } while (!CanHappen(where, fault.what) ||
             (fault.what == FaultWhat::kCorrupt && where == FaultWhere::kControl));
    fault.bytes = Random() % (size + 1);
    const bool unplugs = fault.what == FaultWhat::kUnplug;
    fault.time = milliseconds(1 + Random() % (unplugs ? kRandomAbsenceMs : kRandomDelayMs));
    if (unplugs) fault.replug = static_cast<Replug>(Random() % 3);
    return fault;
  }

  const std::shared_ptr<UsbBus> inner_;
  const FaultPlan plan_;
  const Options options_;
  mutable std::mutex mutex_;
  uint64_t random_;
  std::array<uint64_t, kFaultWheres> counts_{};
  uint64_t faults_ = 0;
  std::map<std::string, Port> ports_;
  uint64_t changes_ = 0;
  int moves_ = 0;
};

class FaultyBus::Transport final : public UsbTransport {
 public:
  Transport(std::shared_ptr<State> state, std::unique_ptr<UsbTransport> inner,
            std::string inner_path, uint64_t visit)
      : state_(std::move(state)),
        inner_(std::move(inner)),
        inner_path_(std::move(inner_path)),
        visit_(visit) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    const Call call(this, FaultWhere::kControl, data.size(), deadline);
    if (call.ended()) return call.end();
    Status status = Passed(inner_->Control(setup, data, state_->InnerDeadline(deadline)), deadline);
    if (status.ok() && call.corrupts() && !data.empty()) data[0] ^= 0x5A;
    return status;
  }

  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override {
    const Call call(this, FaultWhere::kOut, data.size(), deadline);
    if (call.ended()) return call.end();
    const size_t size = call.Shortened(data.size());
    Status status = Passed(
        inner_->BulkOut(endpoint, data.first(size), state_->InnerDeadline(deadline)), deadline);
    if (!status.ok()) return status;
    Throttle(size);
    return size < data.size() ? state_->Lose(deadline) : Status();
  }

  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    const bool is_event = endpoint == kEventEndpoint;
    const Call call(this, is_event ? FaultWhere::kEvent : FaultWhere::kIn, data.size(), deadline);
    if (call.lost()) {  // received by no one
      std::vector<uint8_t> lost(data.size());
      const Result<size_t> received = Read(endpoint, lost, deadline);
      return received.ok() ? state_->Lose(deadline) : received.status();
    }
    if (call.ended()) return call.end();
    Result<size_t> received = Read(endpoint, data, deadline);
    if (!received.ok()) return received;
    if (call.corrupts() && *received > 0) data[0] ^= 0x5A;
    const size_t size = call.Shortened(*received);
    if (size < *received && !is_event) {  // the rest comes with the next read
      std::vector<uint8_t>& rest = rest_[endpoint & 0x0F];
      rest.insert(rest.begin(), data.begin() + static_cast<ptrdiff_t>(size),
                  data.begin() + static_cast<ptrdiff_t>(*received));
    }
    Throttle(size);
    return size;
  }

  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    const Call call(this, FaultWhere::kInterrupt, data.size(), deadline);
    if (call.ended()) return call.end();
    return Passed(inner_->InterruptIn(endpoint, data, state_->InnerDeadline(deadline)), deadline);
  }

  void Cancel() override { inner_->Cancel(); }

  Status Reset(Deadline deadline) override {
    for (std::vector<uint8_t>& rest : rest_) rest.clear();
    const Call call(this, FaultWhere::kReset, 0, deadline);
    if (call.ended()) return call.end();
    return Passed(inner_->Reset(state_->InnerDeadline(deadline)), deadline);
  }

 private:
  // One call's fault, as far as it is the same for all kinds of calls.
  class Call {
   public:
    Call(Transport* transport, FaultWhere where, size_t size, Deadline deadline)
        : fault_(transport->state_->Next(where, size)) {
      State& state = *transport->state_;
      if (fault_.has_value()) {
        switch (fault_->what) {
          case FaultWhat::kDelay: {
            const Deadline until = state.now() + fault_->time;
            state.SleepUntil(std::min(until, deadline));
            if (until > deadline) end_ = Timeout("the answer came too late");
            break;
          }
          case FaultWhat::kStall:
            end_ = InvalidArgument("the device stalled");
            break;
          case FaultWhat::kUnplug:
            state.Unplug(transport->inner_path_, *fault_);
            break;
          case FaultWhat::kDrop:
            lost_ = where == FaultWhere::kIn || where == FaultWhere::kEvent;
            if (!lost_) end_ = state.Lose(deadline);
            break;
          case FaultWhat::kShorten:
          case FaultWhat::kCorrupt:
            break;
        }
      }
      const State::Place place = state.Find(transport->inner_path_);
      if (place.away || place.visits != transport->visit_) {
        lost_ = false;
        end_ = DeviceLost("the device at port %s was unplugged", transport->inner_path_.c_str());
      }
    }

    bool ended() const { return !end_.ok(); }
    Status end() const { return end_; }
    bool lost() const { return lost_; }
    bool corrupts() const { return fault_.has_value() && fault_->what == FaultWhat::kCorrupt; }
    size_t Shortened(size_t size) const {
      if (!fault_.has_value() || fault_->what != FaultWhat::kShorten) return size;
      return std::min<uint64_t>(size, fault_->bytes);
    }

   private:
    const std::optional<PlannedFault> fault_;
    Status end_;
    bool lost_ = false;
  };

  template <typename T>
  T Passed(T result, Deadline deadline) {
    if (result.code() == StatusCode::kTimeout) state_->PassTime(deadline);
    return result;
  }

  // What is left of a read that was cut short, or else what the device sends.
  Result<size_t> Read(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) {
    std::vector<uint8_t>& rest = rest_[endpoint & 0x0F];
    if (!rest.empty()) {
      const size_t count = std::min(rest.size(), data.size());
      std::copy_n(rest.begin(), count, data.begin());
      rest.erase(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(count));
      return count;
    }
    return Passed(inner_->BulkIn(endpoint, data, state_->InnerDeadline(deadline)), deadline);
  }

  void Throttle(size_t bytes) const {
    const uint64_t rate = state_->plan().bytes_per_second;
    if (rate == 0 || bytes == 0) return;
    const std::chrono::duration<double> time(static_cast<double>(bytes) /
                                             static_cast<double>(rate));
    state_->SleepUntil(state_->now() + std::chrono::duration_cast<Clock::duration>(time));
  }

  const std::shared_ptr<State> state_;
  const std::unique_ptr<UsbTransport> inner_;
  const std::string inner_path_;
  const uint64_t visit_;                       // during which it was opened
  std::array<std::vector<uint8_t>, 16> rest_;  // of reads that were cut short, by endpoint
};

FaultyBus::FaultyBus(std::shared_ptr<UsbBus> inner, FaultPlan plan, Options options)
    : state_(std::make_shared<State>(std::move(inner), std::move(plan), std::move(options))) {}

FaultyBus::~FaultyBus() = default;

uint64_t FaultyBus::faults() const { return state_->faults(); }

Result<std::vector<UsbDeviceInfo>> FaultyBus::List() {
  ATOLL_ASSIGN_OR_RETURN(std::vector<UsbDeviceInfo> devices, state_->inner().List());
  std::vector<UsbDeviceInfo> present;
  for (UsbDeviceInfo& device : devices) {
    const State::Place place = state_->Find(device.path);
    if (place.away) continue;
    device.path = place.path;
    if (state_->plan().high_speed) device.speed = std::min(device.speed, UsbSpeed::kHigh);
    present.push_back(std::move(device));
  }
  std::sort(present.begin(), present.end(),
            [](const UsbDeviceInfo& a, const UsbDeviceInfo& b) { return a.path < b.path; });
  return present;
}

Result<std::unique_ptr<UsbTransport>> FaultyBus::Open(const UsbDeviceInfo& device,
                                                      uint8_t interface_number) {
  const std::string inner_path = state_->InnerPath(device.path);
  if (const std::optional<PlannedFault> fault = state_->Next(FaultWhere::kOpen, 0)) {
    if (fault->what == FaultWhat::kDelay) state_->SleepUntil(state_->now() + fault->time);
    if (fault->what == FaultWhat::kUnplug) state_->Unplug(inner_path, *fault);
  }
  const State::Place place = state_->Find(inner_path);
  if (place.away || place.path != device.path) {
    return DeviceLost("the device at port %s is gone", device.path.c_str());
  }
  UsbDeviceInfo inner_device = device;
  inner_device.path = inner_path;
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport,
                         state_->inner().Open(inner_device, interface_number));
  return std::unique_ptr<UsbTransport>(
      std::make_unique<Transport>(state_, std::move(transport), inner_path, place.visits));
}

uint64_t FaultyBus::generation() { return state_->inner().generation() + state_->changes(); }

bool FaultyBus::WaitForChange(uint64_t seen, Deadline deadline) {
  // Comings and goings of the plan happen at known times; those below are looked at in between.
  constexpr milliseconds kLook{100};
  while (generation() == seen) {
    if (state_->now() >= deadline) return false;
    Deadline until = deadline;
    if (const auto next = state_->NextChange()) until = std::min(until, *next);
    if (state_->real_time()) until = std::min(until, state_->now() + kLook);
    state_->SleepUntil(until);
  }
  return true;
}

}  // namespace atollrt
