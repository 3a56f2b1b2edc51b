// SPDX-License-Identifier: Apache-2.0
#include "driver/recording/pcie_replay.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "driver/pcie/page_memory.h"
#include "driver/recording/recorded_pcie_session.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

using Bytes = std::span<const uint8_t>;

// Between two time-outs of a session that waits for longer than the recorded one.
constexpr std::chrono::milliseconds kPause{1};

}  // namespace

struct ReplayPcieBus::Answer {
  Status status;
  uint64_t value = 0;
  uint64_t number = 0;
  bool waits = false;  // as there is nothing to wait for
};

// The host's memory, and what it should be.
class ReplayPcieBus::Mapping final : public DmaMapping {
 public:
  Mapping(std::shared_ptr<ReplayPcieBus> bus, uint64_t number, uint64_t iova, PageMemory memory,
          PageMemory recorded)
      : DmaMapping(memory.bytes(), iova),
        bus_(std::move(bus)),
        number_(number),
        memory_(std::move(memory)),
        recorded_(std::move(recorded)) {}
  ~Mapping() override {
    const std::lock_guard lock(bus_->mutex_);
    const auto found = bus_->mappings_.find(number_);
    if (found != bus_->mappings_.end() && found->second == this) bus_->mappings_.erase(found);
  }

  // False if it does not lie within.
  bool Change(uint64_t offset, Bytes changed, bool by_host) {
    const std::span<uint8_t> recorded = recorded_.bytes();
    if (offset > recorded.size() || changed.size() > recorded.size() - offset) return false;
    std::copy(changed.begin(), changed.end(), recorded.begin() + static_cast<ptrdiff_t>(offset));
    if (!by_host) {
      std::copy(changed.begin(), changed.end(), bytes().begin() + static_cast<ptrdiff_t>(offset));
    }
    return true;
  }
  Status Compare() const {
    const std::span<uint8_t> recorded = recorded_.bytes();
    if (recorded.empty() || std::memcmp(bytes().data(), recorded.data(), recorded.size()) == 0) {
      return {};
    }
    const auto [a, b] = std::mismatch(recorded.begin(), recorded.end(), bytes().begin());
    return InternalError("byte %td of memory %llu is %u, recorded is %u", a - recorded.begin(),
                         Wide(number_), *b, *a);
  }

 private:
  const std::shared_ptr<ReplayPcieBus> bus_;
  const uint64_t number_;
  const PageMemory memory_;
  const PageMemory recorded_;
};

class ReplayPcieBus::Function final : public PcieFunction {
 public:
  explicit Function(std::shared_ptr<ReplayPcieBus> bus) : bus_(std::move(bus)) {}

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override {
    ATOLL_ASSIGN_OR_RETURN(const uint64_t value, Read(bar, offset, 32));
    return static_cast<uint32_t>(value);
  }
  Result<uint64_t> Read64(uint32_t bar, uint64_t offset) override { return Read(bar, offset, 64); }
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override {
    return Call(RegisterCall(PcieKind::kWrite, bar, offset, 32, value));
  }
  Status Write64(uint32_t bar, uint64_t offset, uint64_t value) override {
    return Call(RegisterCall(PcieKind::kWrite, bar, offset, 64, value));
  }

  bool maps_callers_memory() const override { return false; }
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t>, DmaDirection) override {
    return Unsupported("a recorded function does not map memory of callers");
  }
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size_bytes,
                                               DmaDirection direction) override {
    ATOLL_ASSIGN_OR_RETURN(
        const Answer answer,
        bus_->Next({.kind = PcieKind::kAllocate, .direction = direction, .value = size_bytes}));
    if (!answer.status.ok()) return answer.status;
    ATOLL_ASSIGN_OR_RETURN(PageMemory memory, PageMemory::Allocate(size_bytes));
    ATOLL_ASSIGN_OR_RETURN(PageMemory recorded, PageMemory::Allocate(size_bytes));
    auto mapping = std::make_unique<Mapping>(bus_, answer.number, answer.value, std::move(memory),
                                             std::move(recorded));
    const std::lock_guard lock(bus_->mutex_);
    bus_->mappings_[answer.number] = mapping.get();
    return std::unique_ptr<DmaMapping>(std::move(mapping));
  }

  Status EnableInterrupts(uint32_t count) override {
    return Call({.kind = PcieKind::kVectors, .value = count});
  }
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override {
    ATOLL_ASSIGN_OR_RETURN(const Answer answer,
                           bus_->Next({.kind = PcieKind::kAwait, .value = vectors}));
    if (answer.waits) std::this_thread::sleep_until(std::min(deadline, Clock::now() + kPause));
    if (!answer.status.ok()) return answer.status;
    return answer.value & vectors;
  }
  void Cancel() override {}
  Status Reset(Deadline) override { return Call({.kind = PcieKind::kReset}); }
  bool is_present() override { return Call({.kind = PcieKind::kPresent}).ok(); }

 private:
  Result<uint64_t> Read(uint32_t bar, uint64_t offset, uint32_t bits) {
    ATOLL_ASSIGN_OR_RETURN(const Answer answer,
                           bus_->Next(RegisterCall(PcieKind::kRead, bar, offset, bits)));
    if (!answer.status.ok()) return answer.status;
    return answer.value;
  }
  Status Call(const PcieCall& call) {
    ATOLL_ASSIGN_OR_RETURN(const Answer answer, bus_->Next(call));
    return answer.status;
  }

  const std::shared_ptr<ReplayPcieBus> bus_;
};

ReplayPcieBus::ReplayPcieBus(std::unique_ptr<const RecordedPcieSession> session)
    : session_(std::move(session)) {}

Result<std::shared_ptr<ReplayPcieBus>> ReplayPcieBus::Create(Bytes recording) {
  ATOLL_ASSIGN_OR_RETURN(auto session, RecordedPcieSession::Read(recording));
  return std::shared_ptr<ReplayPcieBus>(new ReplayPcieBus(std::move(session)));
}

ReplayPcieBus::~ReplayPcieBus() {
  if (departure_.ok() && next_ > 0 && next_ < calls()) {
    Log(LogSeverity::kWarning, "the session ended after %zu of %zu recorded calls", next_, calls());
  }
}

std::string ReplayPcieBus::Note(const std::string& key) const { return session_->notes.Find(key); }

Result<std::vector<PcieDeviceInfo>> ReplayPcieBus::FirstDevices() const {
  const std::vector<PcieEvent>& events = session_->events;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].call.kind == PcieKind::kList && events[i].code == StatusCode::kOk) {
      return session_->DevicesOf(i);
    }
  }
  return InvalidArgument("nobody looked at the bus in this recording");
}

Status ReplayPcieBus::departure() const {
  const std::lock_guard lock(mutex_);
  return departure_;
}

size_t ReplayPcieBus::replayed() const {
  const std::lock_guard lock(mutex_);
  return next_;
}

size_t ReplayPcieBus::calls() const { return session_->events.size(); }

Status ReplayPcieBus::Depart(const std::string& how) {
  departure_ = InternalError("the session departs from its recording at call %zu of %zu: %s",
                             next_ + 1, calls(), how.c_str());
  return departure_;
}

// The recorded call at next_ has happened: what it changed in memory, and what it is the last of.
Status ReplayPcieBus::Pass(size_t event) {
  const PcieEvent& passed = session_->events[event];
  const bool by_host = passed.call.kind == PcieKind::kWrite;
  for (size_t i = session_->ChangesBegin(event); i < passed.changes_end; ++i) {
    const MemoryChange& change = session_->changes[i];
    const auto found = mappings_.find(change.mapping);
    if (found == mappings_.end() || !found->second->Change(change.offset, change.bytes, by_host)) {
      return Depart(Format("%zu bytes of memory %llu change at %llx, and there are none",
                           change.bytes.size(), Wide(change.mapping), Wide(change.offset)));
    }
  }
  switch (passed.call.kind) {
    case PcieKind::kRead:
      last_reads_[{passed.call.bar, passed.call.place}] = event;
      break;
    case PcieKind::kPresent:
      last_presence_ = event;
      break;
    case PcieKind::kWrite:
      last_write_ = event;
      break;
    case PcieKind::kAwait:
      timed_out_ = passed.code == StatusCode::kTimeout;
      break;
    case PcieKind::kList:
      last_list_ = event;
      break;
    default:
      break;
  }
  next_ = event + 1;
  return {};
}

Status ReplayPcieBus::CompareMemory(const PcieCall& wanted) const {
  for (const auto& [number, mapping] : mappings_) {
    ATOLL_RETURN_IF_ERROR(mapping->Compare().WithContext(DescribePcie(wanted)));
  }
  return {};
}

// What was recorded as the answer to `wanted`, or where the two part.
Result<ReplayPcieBus::Answer> ReplayPcieBus::Next(const PcieCall& wanted) {
  const std::vector<PcieEvent>& events = session_->events;
  const std::lock_guard lock(mutex_);
  if (!departure_.ok()) return departure_;
  const auto answer = [&](size_t event) {
    return Answer{.status = events[event].status(),
                  .value = events[event].answer,
                  .number = events[event].number};
  };
  // How often these happen depends on how long something took.
  const auto is_waiting = [&](const PcieEvent& event) {
    switch (event.call.kind) {
      case PcieKind::kRead:
      case PcieKind::kPresent:
      case PcieKind::kList:
        return true;
      case PcieKind::kAwait:
        return event.code == StatusCode::kTimeout;
      case PcieKind::kWrite:
        return last_write_ < events.size() && event.call == events[last_write_].call;
      default:
        return false;
    }
  };
  size_t found = next_;
  while (found < events.size() && events[found].call != wanted && is_waiting(events[found])) {
    ++found;
  }
  if (found < events.size() && events[found].call == wanted) {
    while (next_ <= found) ATOLL_RETURN_IF_ERROR(Pass(next_));
    if (wanted.kind == PcieKind::kWrite) {
      if (const Status same = CompareMemory(wanted); !same.ok()) {
        --next_;
        return Depart(same.message());
      }
    }
    return answer(found);
  }
  // Nothing is recorded, but it may be more of what was before.
  if (wanted.kind == PcieKind::kRead) {
    const auto last = last_reads_.find({wanted.bar, wanted.place});
    if (last != last_reads_.end() && events[last->second].call == wanted) {
      return answer(last->second);
    }
  }
  if (wanted.kind == PcieKind::kPresent) {
    return last_presence_ < events.size() ? answer(last_presence_) : Answer();
  }
  // Where looks at the device come next, the recorded session had waited for long enough.
  if (wanted.kind == PcieKind::kAwait && (timed_out_ || found > next_)) {
    return Answer{.status = Timeout("no interrupt is recorded"), .waits = true};
  }
  if (wanted.kind == PcieKind::kWrite && last_write_ < events.size() &&
      events[last_write_].call == wanted) {
    return answer(last_write_);
  }
  return Depart(DescribePcie(wanted) + (found == events.size()
                                            ? ", but the recording ends there"
                                            : ", recorded is " + DescribePcie(events[found].call)));
}

// The next recorded look at the bus, or the last one again.
Result<std::vector<PcieDeviceInfo>> ReplayPcieBus::List() {
  const std::vector<PcieEvent>& events = session_->events;
  const std::lock_guard lock(mutex_);
  if (next_ < events.size() && events[next_].call.kind == PcieKind::kList) {
    ATOLL_RETURN_IF_ERROR(Pass(next_));
  }
  if (last_list_ >= events.size()) return std::vector<PcieDeviceInfo>();
  if (events[last_list_].code != StatusCode::kOk) return events[last_list_].status();
  return session_->DevicesOf(last_list_);
}

Result<std::unique_ptr<PcieFunction>> ReplayPcieBus::Open(const PcieDeviceInfo& device) {
  ATOLL_ASSIGN_OR_RETURN(const Answer answer,
                         Next({.kind = PcieKind::kOpen, .address = device.address}));
  if (!answer.status.ok()) return answer.status;
  return std::unique_ptr<PcieFunction>(std::make_unique<Function>(shared_from_this()));
}

bool ReplayPcieBus::WaitForChange(uint64_t, Deadline deadline) {
  std::this_thread::sleep_until(std::min(deadline, Clock::now() + std::chrono::milliseconds(10)));
  return false;
}

}  // namespace atollrt
