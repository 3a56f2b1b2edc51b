// SPDX-License-Identifier: Apache-2.0
#include "driver/faults/faulty_bus.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/atoll1/protocol.h"
#include "driver/usb/usb_bus.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

using std::chrono::milliseconds;

// With a clock that is not the real one, the device below gets so much real time for a call.
constexpr milliseconds kInnerPatience{20};
// What happens at random takes no longer.
constexpr int kRandomDelayMs = 100;
constexpr int kRandomAbsenceMs = 300;

constexpr FaultWhat kAllWhats[] = {FaultWhat::kDrop,    FaultWhat::kDelay,   FaultWhat::kStall,
                                   FaultWhat::kShorten, FaultWhat::kCorrupt, FaultWhat::kUnplug};

uint64_t Mix(uint64_t z) {  // the finalizer of splitmix64 (Steele, Lea, Flood 2014)
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Random numbers for one transfer. They depend on nothing else: what happened before, or happens on
// other endpoints at the same time, does not move a fault from one transfer to another.
class Dice {
 public:
  Dice(uint64_t seed, FaultWhere where, uint64_t number)
      : state_(Mix(Mix(seed + kGamma) + static_cast<uint64_t>(where)) + number * kGamma) {
    state_ = Mix(state_);
  }
  uint64_t Next() { return Mix(state_ += kGamma); }
  double Real() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;
  uint64_t state_;
};

// What a register says is left alone: nobody could notice.
PlannedFault RandomFault(Dice* dice, FaultWhere where, uint64_t number, size_t size) {
  PlannedFault fault{.where = where, .number = number};
  do {
    fault.what = kAllWhats[dice->Next() % std::size(kAllWhats)];
  } while (!CanHappen(where, fault.what) ||
           (fault.what == FaultWhat::kCorrupt && where == FaultWhere::kControl));
  fault.bytes = dice->Next() % (size + 1);
  const bool unplugs = fault.what == FaultWhat::kUnplug;
  fault.time = milliseconds(1 + dice->Next() % (unplugs ? kRandomAbsenceMs : kRandomDelayMs));
  if (unplugs) fault.replug = static_cast<Replug>(dice->Next() % 3);
  return fault;
}

// With this a host asks whether it must go on waiting; how often depends on how long that takes.
bool AsksForStatus(const ControlSetup& setup) {
  return setup == RegisterRequest(static_cast<uint32_t>(Register::kStatus), RegisterWidth::k32,
                                  RegisterAccess::kRead);
}

}  // namespace

// What all transports of a bus share: the plan, how far it is, and what is away.
class FaultyBus::State {
 public:
  State(std::shared_ptr<UsbBus> inner, FaultPlan plan, Options options)
      : inner_(std::move(inner)), plan_(std::move(plan)), options_(std::move(options)) {}

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

  // What goes wrong in the next transfer of that kind, if anything does. `size` bytes were asked
  // for.
  std::optional<PlannedFault> Next(const std::string& inner_path, FaultWhere where, size_t size) {
    const std::lock_guard lock(mutex_);
    const uint64_t number = ++Update(inner_path).transfers[static_cast<size_t>(where)];
    std::optional<PlannedFault> fault = Decide(where, number, size);
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
  // A call reaches the device. Whether it is there, as during visit `visit`.
  bool Reach(const std::string& inner_path, uint64_t visit) {
    const std::lock_guard lock(mutex_);
    Port& port = Update(inner_path);
    const auto is_there = [&] { return !port.place.away && port.place.visits == visit; };
    if (is_there() && std::exchange(port.leaves_again, false)) Leave(&port, now());
    return is_there();
  }
  void Unplug(const std::string& inner_path, const PlannedFault& fault) {
    const std::lock_guard lock(mutex_);
    Port& port = Update(inner_path);
    if (port.place.away) return;
    port.leaves_again = fault.replug == Replug::kTwice;
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
  // When something comes back next.
  std::optional<Deadline> NextChange() {
    const std::lock_guard lock(mutex_);
    std::optional<Deadline> next;
    for (const auto& [inner_path, port] : ports_) {
      if (port.comes_at.has_value() && (!next.has_value() || *port.comes_at < *next)) {
        next = port.comes_at;
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
    std::optional<Deadline> comes_at;     // if it is away
    bool leaves_again = false;            // at the next call
    std::array<uint64_t, kFaultWheres> transfers{};  // so far, by kind
  };

  std::optional<PlannedFault> Decide(FaultWhere where, uint64_t number, size_t size) const {
    std::optional<PlannedFault> fault;
    for (const PlannedFault& candidate : plan_.faults) {
      if (candidate.where == where && candidate.number == number) fault = candidate;
    }
    if (!fault.has_value() && plan_.random) {
      Dice dice(plan_.seed, where, number);
      if (dice.Real() < plan_.probability) fault = RandomFault(&dice, where, number, size);
    }
    return fault;
  }

  // All with the mutex held.
  Port& Update(const std::string& inner_path) {
    const auto [found, is_new] = ports_.try_emplace(inner_path);
    Port& port = found->second;
    if (is_new) port.place.path = inner_path;
    if (port.comes_at.has_value() && *port.comes_at <= now()) {
      port.comes_at.reset();
      port.place.away = false;
      ++changes_;
    }
    return port;
  }
  void Leave(Port* port, Deadline at) {
    port->place.away = true;
    ++port->place.visits;
    ++changes_;
    if (port->absence.has_value()) port->comes_at = at + *port->absence;
  }

  const std::shared_ptr<UsbBus> inner_;
  const FaultPlan plan_;
  const Options options_;
  mutable std::mutex mutex_;
  uint64_t faults_ = 0;
  std::map<std::string, Port> ports_;
  uint64_t changes_ = 0;
  int moves_ = 0;
};

class FaultyBus::Transport final : public UsbTransport {
 public:
  Transport(std::shared_ptr<State> state, std::unique_ptr<UsbTransport> inner,
            std::string inner_path, uint64_t visit, bool is_atoll)
      : state_(std::move(state)),
        inner_(std::move(inner)),
        inner_path_(std::move(inner_path)),
        visit_(visit),
        is_atoll_(is_atoll) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    if (IsWaiting(setup)) {
      if (!state_->Reach(inner_path_, visit_)) return Unplugged();
      return ControlBelow(setup, data, deadline);
    }
    const auto fault = Begin(FaultWhere::kControl, data.size(), deadline);
    if (!fault.ok()) {
      last_read_.reset();
      return fault.status();
    }
    Status status = ControlBelow(setup, data, deadline);
    if (status.ok() && fault->has_value() && (*fault)->what == FaultWhat::kCorrupt && !data.empty())
      data[0] ^= 0x5A;
    return status;
  }

  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override {
    ATOLL_ASSIGN_OR_RETURN(const auto fault, Begin(FaultWhere::kOut, data.size(), deadline));
    size_t size = data.size();
    if (fault.has_value() && fault->what == FaultWhat::kShorten) {
      size = std::min<uint64_t>(size, fault->bytes);
    }
    Status status = Passed(
        inner_->BulkOut(endpoint, data.first(size), state_->InnerDeadline(deadline)), deadline);
    if (!status.ok()) return status;
    Throttle(size);
    return size < data.size() ? state_->Lose(deadline) : Status();
  }

  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    const bool is_event = endpoint == kEventEndpoint;
    return Receive(is_event ? FaultWhere::kEvent : FaultWhere::kIn, endpoint, data, deadline,
                   [&](Deadline time) { return inner_->BulkIn(endpoint, data, time); });
  }

  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    return Receive(FaultWhere::kInterrupt, endpoint, data, deadline,
                   [&](Deadline time) { return inner_->InterruptIn(endpoint, data, time); });
  }

  void Cancel() override { inner_->Cancel(); }

  Status Reset(Deadline deadline) override {
    reads_.fill({});
    last_read_.reset();
    ATOLL_RETURN_IF_ERROR(Begin(FaultWhere::kReset, 0, deadline).status());
    return Passed(inner_->Reset(state_->InnerDeadline(deadline)), deadline);
  }

 private:
  // Of a call that sends or asks: what goes wrong with it while it goes on, if anything does; or
  // how it ends at once.
  Result<std::optional<PlannedFault>> Begin(FaultWhere where, size_t size, Deadline deadline) {
    // Nothing can go wrong with a call to nobody.
    if (!state_->Reach(inner_path_, visit_)) return Unplugged();
    std::optional<PlannedFault> fault = state_->Next(inner_path_, where, size);
    if (fault.has_value()) ATOLL_RETURN_IF_ERROR(Apply(*fault, deadline));
    return fault;
  }
  // An error if the call ends with that.
  Status Apply(const PlannedFault& fault, Deadline deadline) {
    switch (fault.what) {
      case FaultWhat::kDelay: {
        const Deadline until = state_->now() + fault.time;
        state_->SleepUntil(std::min(until, deadline));
        return until <= deadline ? Status() : Timeout("the answer came too late");
      }
      case FaultWhat::kStall:
        return InvalidArgument("the device stalled");
      case FaultWhat::kUnplug:
        state_->Unplug(inner_path_, fault);
        return Unplugged();
      case FaultWhat::kDrop:
        return state_->Lose(deadline);
      case FaultWhat::kShorten:
      case FaultWhat::kCorrupt:
        break;
    }
    return {};
  }

  Status Unplugged() const {
    return DeviceLost("the device at port %s was unplugged", inner_path_.c_str());
  }

  // Whether a host that waits asks whether it must go on; a Coral's reads a register again and
  // again. Such calls do not count.
  bool IsWaiting(const ControlSetup& setup) const {
    return is_atoll_ ? AsksForStatus(setup) : last_read_ == setup;
  }
  Status ControlBelow(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) {
    Status status = Passed(inner_->Control(setup, data, state_->InnerDeadline(deadline)), deadline);
    last_read_.reset();
    if (status.ok() && setup.is_in()) last_read_ = setup;
    return status;
  }

  template <typename T>
  T Passed(T result, Deadline deadline) {
    if (result.code() == StatusCode::kTimeout) state_->PassTime(deadline);
    return result;
  }

  // A read, by `read_below`. It is a transfer, which something can happen to, when it brings bytes
  // that do not belong to the last one: how often a host asks before that depends on time.
  template <typename ReadBelow>
  Result<size_t> Receive(FaultWhere where, uint8_t endpoint, std::span<uint8_t> data,
                         Deadline deadline, const ReadBelow& read_below) {
    if (!state_->Reach(inner_path_, visit_)) return Unplugged();
    Reads& reads = reads_[endpoint & 0x0F];
    size_t count = std::min(reads.rest.size(), data.size());
    bool goes_on = count > 0;
    if (goes_on) {
      std::copy_n(reads.rest.begin(), count, data.begin());
      reads.rest.erase(reads.rest.begin(), reads.rest.begin() + static_cast<ptrdiff_t>(count));
    } else {
      Result<size_t> received = Passed(read_below(state_->InnerDeadline(deadline)), deadline);
      if (!received.ok() || *received == 0) return received;
      count = *received;
      goes_on = data.data() == reads.goes_on_at;
    }
    const std::optional<PlannedFault> fault =
        goes_on ? std::nullopt : state_->Next(inner_path_, where, data.size());
    if (fault.has_value()) {
      const std::span<const uint8_t> bytes = data.first(count);
      const Status end = Apply(*fault, deadline);
      if (!end.ok()) {
        // Late or stalled they come another time; else they are lost.
        const bool keeps = fault->what == FaultWhat::kDelay || fault->what == FaultWhat::kStall;
        if (keeps) reads.PutBack(bytes);
        return end;
      }
      if (fault->what == FaultWhat::kShorten) {
        count = std::min<uint64_t>(count, fault->bytes);
        // The rest comes with the next read, but of an event it is lost.
        if (where != FaultWhere::kEvent) reads.PutBack(bytes.subspan(count));
      }
      if (fault->what == FaultWhat::kCorrupt) data[0] ^= 0x5A;
    }
    reads.goes_on_at = count < data.size() ? data.data() + count : nullptr;
    Throttle(count);
    return count;
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
  const uint64_t visit_;  // during which it was opened
  const bool is_atoll_;
  std::optional<ControlSetup> last_read_;  // the last control transfer, if it was a good read
  // By endpoint.
  struct Reads {
    std::vector<uint8_t> rest;  // has come, but was held back; the transfer has had its fault
    const uint8_t* goes_on_at = nullptr;  // where a read begins that takes the rest of a transfer

    void PutBack(std::span<const uint8_t> bytes) {
      rest.insert(rest.begin(), bytes.begin(), bytes.end());
    }
  };
  std::array<Reads, 16> reads_;
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
  const auto is_there = [&] {
    const State::Place place = state_->Find(inner_path);
    return !place.away && place.path == device.path;
  };
  if (is_there()) {
    if (const auto fault = state_->Next(inner_path, FaultWhere::kOpen, 0)) {
      if (fault->what == FaultWhat::kDelay) state_->SleepUntil(state_->now() + fault->time);
      if (fault->what == FaultWhat::kUnplug) state_->Unplug(inner_path, *fault);
    }
  }
  if (!is_there()) return DeviceLost("the device at port %s is gone", device.path.c_str());
  const uint64_t visit = state_->Find(inner_path).visits;
  UsbDeviceInfo inner_device = device;
  inner_device.path = inner_path;
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport,
                         state_->inner().Open(inner_device, interface_number));
  return std::unique_ptr<UsbTransport>(std::make_unique<Transport>(
      state_, std::move(transport), inner_path, visit, device.id == kAtollUsbId));
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
