// SPDX-License-Identifier: Apache-2.0
#include "driver/recording/pcie_recording.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

#include "driver/pcie/device_memory.h"
#include "driver/pcie/page_memory.h"
#include "driver/recording/session_text.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {

// A call of a bus or of a function.
struct PcieCall {
  enum class Kind { kRead, kWrite, kAwait, kPresent, kAllocate, kVectors, kReset, kOpen, kList };
  Kind kind = Kind::kRead;
  uint32_t bar = 0;             // of registers
  uint32_t bits = 0;            // likewise
  DmaDirection direction = {};  // kAllocate
  uint64_t place = 0;           // the offset of a register
  // What is written, the vectors that are waited for, how many there are, bytes of memory.
  uint64_t value = 0;
  std::string_view address = {};  // kOpen
  bool operator==(const PcieCall&) const = default;
};

namespace {

using Bytes = std::span<const uint8_t>;
using PcieKind = PcieCall::Kind;

// Words of the kinds, in their order.
constexpr std::string_view kPcieWords[] = {"read",    "write", "await", "present", "allocate",
                                           "vectors", "reset", "open",  "list"};
constexpr uint32_t kPcieTextInterface = 0;
// Changes that are no further apart are recorded as one.
constexpr size_t kGapBytes = 64;
// Between two time-outs of a session that waits for longer than the recorded one.
constexpr std::chrono::milliseconds kPause{1};
// Packets are cut there, as Wireshark takes no longer ones than 256 KiB.
constexpr size_t kMemoryPieceBytes = size_t{128} << 10;

unsigned long long Wide(uint64_t number) { return number; }

// What stands between the word of a kind and the status.
std::string PcieWords(const PcieCall& call) {
  std::string word(kPcieWords[static_cast<size_t>(call.kind)]);
  switch (call.kind) {
    case PcieKind::kRead:
      return word + Format(" %u %llx %u", call.bar, Wide(call.place), call.bits);
    case PcieKind::kWrite:
      return word +
             Format(" %u %llx %u %llx", call.bar, Wide(call.place), call.bits, Wide(call.value));
    case PcieKind::kAwait:
      return word + Format(" %llx", Wide(call.value));
    case PcieKind::kAllocate:
      return word + Format(" %llu %u", Wide(call.value), static_cast<unsigned>(call.direction));
    case PcieKind::kVectors:
      return word + Format(" %llu", Wide(call.value));
    case PcieKind::kOpen:
      return word + " " + std::string(call.address);
    default:
      return word;
  }
}

std::string DescribePcie(const PcieCall& call) {
  switch (call.kind) {
    case PcieKind::kRead:
      return Format("a read of register %llx of BAR %u, %u bits", Wide(call.place), call.bar,
                    call.bits);
    case PcieKind::kWrite:
      return Format("writing %llx to register %llx of BAR %u, %u bits", Wide(call.value),
                    Wide(call.place), call.bar, call.bits);
    case PcieKind::kAwait:
      return Format("a wait for vectors %llx", Wide(call.value));
    case PcieKind::kPresent:
      return "a look whether the function is there";
    case PcieKind::kAllocate:
      return Format("memory of %llu bytes for the device", Wide(call.value));
    case PcieKind::kVectors:
      return Format("connecting %llu vectors", Wide(call.value));
    case PcieKind::kReset:
      return "a reset";
    case PcieKind::kOpen:
      return Format("opening %s", std::string(call.address).c_str());
    case PcieKind::kList:
      break;
  }
  return "a look at the bus";
}

PcieCall RegisterCall(PcieKind kind, uint32_t bar, uint64_t offset, uint32_t bits,
                      uint64_t value = 0) {
  return {.kind = kind, .bar = bar, .bits = bits, .place = offset, .value = value};
}

// Calls take(offset, length) for the ranges in which `now` differs from `before`. What lies between
// two changes is taken, too, if they are near and `other` is as `before` there. The device, and
// other threads of the program, may change `now` and `other` meanwhile.
template <typename Take>
void ForEachChange(Bytes now, Bytes before, Bytes other, const Take& take) {
  size_t at = 0;
  const auto find = [&](size_t from) {  // the first difference
    uint8_t seen[4096];
    while (from < now.size()) {
      const size_t count = std::min(sizeof(seen), now.size() - from);
      GlanceAt(now.subspan(from, count), seen);
      if (std::memcmp(seen, &before[from], count) != 0) {
        const uint8_t* const change = std::mismatch(seen, seen + count, &before[from]).first;
        return from + static_cast<size_t>(change - seen);
      }
      from += count;
    }
    return now.size();
  };
  while ((at = find(at)) < now.size()) {
    size_t end = at + 1;
    for (size_t i = end; i < now.size() && i - end <= kGapBytes && i - at < kMemoryPieceBytes;
         ++i) {
      if (GlanceAt(&now[i]) != before[i]) {
        end = i + 1;
      } else if (GlanceAt(&other[i]) != before[i]) {
        break;
      }
    }
    take(at, end - at);
    at = end;
  }
}

}  // namespace

// ---- Recording --------------------------------------------------------------------------------

// The host's memory, the device's (below), and what both had when they were last made alike.
class RecordingPcieBus::Mapping final : public DmaMapping {
 public:
  Mapping(Function* function, uint64_t number, PageMemory memory, std::vector<uint8_t> alike,
          std::unique_ptr<DmaMapping> below)
      : DmaMapping(memory.bytes(), below->iova()),
        function_(*function),
        number_(number),
        memory_(std::move(memory)),
        alike_(std::move(alike)),
        below_(std::move(below)) {}
  ~Mapping() override;

  void GiveToDevice(RecordingPcieBus* bus) {
    ForEachChange(bytes(), alike_, below_->bytes(), [&](size_t offset, size_t length) {
      Move("host", bytes().subspan(offset, length), offset, below_->bytes(), bus);
    });
  }
  void TakeFromDevice(RecordingPcieBus* bus) {
    ForEachChange(below_->bytes(), alike_, bytes(), [&](size_t offset, size_t length) {
      Move("device", below_->bytes().subspan(offset, length), offset, bytes(), bus);
    });
  }

 private:
  void Move(const char* who, Bytes changed, size_t offset, std::span<uint8_t> to,
            RecordingPcieBus* bus) {
    // Once only: the device may change them meanwhile.
    const std::span<uint8_t> alike = std::span(alike_).subspan(offset, changed.size());
    GlanceAt(changed, alike.data());
    StoreAsDevice(alike, to.data() + offset);
    bus->Write(Format("%s %llu %zx\n", who, Wide(number_), offset), alike);
  }

  Function& function_;
  const uint64_t number_;
  const PageMemory memory_;
  std::vector<uint8_t> alike_;
  const std::unique_ptr<DmaMapping> below_;
};

class RecordingPcieBus::Function final : public PcieFunction {
 public:
  Function(std::unique_ptr<PcieFunction> inner, std::shared_ptr<RecordingPcieBus> bus)
      : inner_(std::move(inner)), bus_(std::move(bus)) {}

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override {
    return Read(RegisterCall(PcieKind::kRead, bar, offset, 32), inner_->Read32(bar, offset));
  }
  Result<uint64_t> Read64(uint32_t bar, uint64_t offset) override {
    return Read(RegisterCall(PcieKind::kRead, bar, offset, 64), inner_->Read64(bar, offset));
  }
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override {
    return Write(RegisterCall(PcieKind::kWrite, bar, offset, 32, value),
                 [&] { return inner_->Write32(bar, offset, value); });
  }
  Status Write64(uint32_t bar, uint64_t offset, uint64_t value) override {
    return Write(RegisterCall(PcieKind::kWrite, bar, offset, 64, value),
                 [&] { return inner_->Write64(bar, offset, value); });
  }

  bool maps_callers_memory() const override { return false; }
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t>, DmaDirection) override {
    return Unsupported("a recorded function does not map memory of callers");
  }
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size_bytes,
                                               DmaDirection direction) override {
    const PcieCall call{.kind = PcieKind::kAllocate, .direction = direction, .value = size_bytes};
    ATOLL_ASSIGN_OR_RETURN(PageMemory memory, PageMemory::Allocate(size_bytes));
    std::vector<uint8_t> alike(memory.bytes().size());
    auto below = inner_->Allocate(size_bytes, direction);
    const std::lock_guard lock(bus_->mutex_);
    if (!below.ok()) {
      bus_->Write(PcieWords(call) + " 0 0 " + StatusText(below.status()));
      return below.status();
    }
    const uint64_t number = ++bus_->mappings_;
    bus_->Write(PcieWords(call) + Format(" %llu %llx ", Wide(number), Wide((*below)->iova())) +
                StatusText({}));
    auto mapping = std::make_unique<Mapping>(this, number, std::move(memory), std::move(alike),
                                             *std::move(below));
    memory_.push_back(mapping.get());
    return std::unique_ptr<DmaMapping>(std::move(mapping));
  }

  Status EnableInterrupts(uint32_t count) override {
    return Passed({.kind = PcieKind::kVectors, .value = count}, inner_->EnableInterrupts(count));
  }
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override {
    return Read({.kind = PcieKind::kAwait, .value = vectors},
                inner_->AwaitInterrupts(vectors, deadline));
  }
  void Cancel() override { inner_->Cancel(); }
  Status Reset(Deadline deadline) override {
    return Passed({.kind = PcieKind::kReset}, inner_->Reset(deadline));
  }
  bool is_present() override {
    const bool is_there = inner_->is_present();
    return Passed({.kind = PcieKind::kPresent}, is_there ? Status() : DeviceLost("not there")).ok();
  }

  // With the bus's mutex held.
  void Forget(Mapping* mapping) { std::erase(memory_, mapping); }
  RecordingPcieBus& bus() { return *bus_; }

 private:
  // What the device had written by the time that `result` was there comes in front of it.
  template <typename T>
  Result<T> Read(const PcieCall& call, Result<T> result) {
    const std::lock_guard lock(bus_->mutex_);
    for (Mapping* mapping : memory_) mapping->TakeFromDevice(bus_.get());
    bus_->Write(PcieWords(call) + Format(" %llx ", result.ok() ? Wide(*result) : 0) +
                StatusText(result.status()));
    return result;
  }
  template <typename WriteBelow>
  Status Write(const PcieCall& call, const WriteBelow& write_below) {
    const std::lock_guard lock(bus_->mutex_);
    for (Mapping* mapping : memory_) mapping->GiveToDevice(bus_.get());
    Status status = write_below();
    bus_->Write(PcieWords(call) + " " + StatusText(status));
    return status;
  }
  Status Passed(const PcieCall& call, Status status) {
    const std::lock_guard lock(bus_->mutex_);
    bus_->Write(PcieWords(call) + " " + StatusText(status));
    return status;
  }

  const std::unique_ptr<PcieFunction> inner_;
  const std::shared_ptr<RecordingPcieBus> bus_;
  std::vector<Mapping*> memory_;  // guarded by the bus's mutex
};

RecordingPcieBus::Mapping::~Mapping() {
  const std::lock_guard lock(function_.bus().mutex_);
  function_.Forget(this);
}

Result<std::shared_ptr<RecordingPcieBus>> RecordingPcieBus::Create(std::shared_ptr<PcieBus> inner,
                                                                   const std::string& path) {
  constexpr uint16_t kLinkTypes[] = {kLinkTypeUser0};
  ATOLL_ASSIGN_OR_RETURN(PcapngWriter writer, PcapngWriter::Create(path, kLinkTypes));
  std::shared_ptr<RecordingPcieBus> bus(new RecordingPcieBus(std::move(inner), std::move(writer)));
  bus->Note(kBusNote, kPcieBusNote);
  return bus;
}

RecordingPcieBus::~RecordingPcieBus() {
  if (const Status status = writer_.Close(); !status.ok()) {
    Log(LogSeverity::kError, "%s", status.message().c_str());
  }
}

// With the mutex held.
void RecordingPcieBus::Write(const std::string& text, Bytes bytes) {
  writer_.Write(kPcieTextInterface, UnixNs(), TextBytes(text), bytes);
}

void RecordingPcieBus::Note(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  Write(SessionNotes::Text(key, value));
}

Result<std::vector<PcieDeviceInfo>> RecordingPcieBus::List() {
  Result<std::vector<PcieDeviceInfo>> devices = inner_->List();
  std::string text = "list " + StatusText(devices.status());
  if (devices.ok()) {
    for (const PcieDeviceInfo& info : *devices) {
      text += Format("\n%04x %04x %u %u %s %s", info.id.vendor, info.id.device, info.link_lanes,
                     info.link_generation, info.address.c_str(), info.driver.c_str());
    }
  }
  const std::lock_guard lock(mutex_);
  Write(text);
  return devices;
}

Result<std::unique_ptr<PcieFunction>> RecordingPcieBus::Open(const PcieDeviceInfo& device) {
  auto function = inner_->Open(device);
  {
    const std::lock_guard lock(mutex_);
    Write(PcieWords({.kind = PcieKind::kOpen, .address = device.address}) + " " +
          StatusText(function.status()));
  }
  if (!function.ok()) return function;
  return std::unique_ptr<PcieFunction>(
      std::make_unique<Function>(*std::move(function), shared_from_this()));
}

// ---- Reading ----------------------------------------------------------------------------------

namespace {

// One call with its answer. Text is part of the recording.
struct PcieEvent {
  PcieCall call = {};
  StatusCode code = StatusCode::kOk;
  std::string_view message = {};
  uint64_t answer = 0;     // a register, vectors, the address of memory
  uint64_t number = 0;     // of memory
  size_t devices_end = 0;  // kList: those behind the ones of the event before
  size_t changes_end = 0;  // of memory, likewise: the host's before a write, else the device's

  Status status() const {
    return code == StatusCode::kOk ? Status() : Status(code, std::string(message));
  }
};

struct MemoryChange {
  uint64_t mapping = 0;
  uint64_t offset = 0;
  Bytes bytes = {};
};

}  // namespace

struct RecordedPcieSession {
  std::vector<uint8_t> recording;
  SessionNotes notes;
  std::vector<PcieEvent> events;
  std::vector<MemoryChange> changes;
  std::vector<PcieDeviceInfo> devices;

  // Where those of an event begin.
  size_t ChangesBegin(size_t event) const { return event == 0 ? 0 : events[event - 1].changes_end; }
  std::vector<PcieDeviceInfo> DevicesOf(size_t event) const {
    const size_t begin = event == 0 ? 0 : events[event - 1].devices_end;
    return {devices.begin() + static_cast<ptrdiff_t>(begin),
            devices.begin() + static_cast<ptrdiff_t>(events[event].devices_end)};
  }

  Status Add(Bytes packet) {
    std::string_view text(reinterpret_cast<const char*>(packet.data()), packet.size());
    LineReader line(Cut(&text, '\n'));
    const std::string_view word = line.Word();
    if (word == "note") {
      notes.Read(line);
      return {};
    }
    if (word == "host" || word == "device") {
      const uint64_t mapping = line.Number(10, UINT64_MAX);
      const uint64_t offset = line.Number(16, UINT64_MAX);
      if (!line.ok()) return InvalidArgument("a change of memory that cannot be read");
      changes.push_back({mapping, offset, TextBytes(text)});
      return {};
    }
    const auto found = std::find(std::begin(kPcieWords), std::end(kPcieWords), word);
    if (found == std::end(kPcieWords)) return {};  // of a later version
    PcieEvent event;
    event.call.kind = static_cast<PcieKind>(found - std::begin(kPcieWords));
    ReadCall(&line, &event);
    line.ReadStatus(&event.code, &event.message);
    while (event.call.kind == PcieKind::kList && !text.empty() && line.ok()) {
      LineReader entry(Cut(&text, '\n'));
      PcieDeviceInfo& info = devices.emplace_back();
      info.id.vendor = static_cast<uint16_t>(entry.Number(16, UINT16_MAX));
      info.id.device = static_cast<uint16_t>(entry.Number(16, UINT16_MAX));
      info.link_lanes = static_cast<uint32_t>(entry.Number());
      info.link_generation = static_cast<uint32_t>(entry.Number());
      info.address = std::string(entry.Word());
      info.driver = std::string(entry.rest());
      if (!entry.ok()) return InvalidArgument("a list of devices that cannot be read");
    }
    if (!line.ok()) {
      return InvalidArgument("a line that cannot be read: '%.*s'",
                             static_cast<int>(std::min<size_t>(packet.size(), 80)),
                             reinterpret_cast<const char*>(packet.data()));
    }
    event.devices_end = devices.size();
    event.changes_end = changes.size();
    events.push_back(event);
    return {};
  }

 private:
  // What PcieWords wrote, and the answer.
  static void ReadCall(LineReader* line, PcieEvent* event) {
    PcieCall& call = event->call;
    switch (call.kind) {
      case PcieKind::kRead:
      case PcieKind::kWrite:
        call.bar = static_cast<uint32_t>(line->Number());
        call.place = line->Number(16, UINT64_MAX);
        call.bits = static_cast<uint32_t>(line->Number());
        (call.kind == PcieKind::kRead ? event->answer : call.value) = line->Number(16, UINT64_MAX);
        return;
      case PcieKind::kAwait:
        call.value = line->Number(16, UINT64_MAX);
        event->answer = line->Number(16, UINT64_MAX);
        return;
      case PcieKind::kAllocate:
        call.value = line->Number(10, UINT64_MAX);
        call.direction =
            static_cast<DmaDirection>(line->Number(10, static_cast<uint64_t>(DmaDirection::kBoth)));
        event->number = line->Number(10, UINT64_MAX);
        event->answer = line->Number(16, UINT64_MAX);
        return;
      case PcieKind::kVectors:
        call.value = line->Number();
        return;
      case PcieKind::kOpen:
        call.address = line->Word();
        return;
      default:
        return;
    }
  }
};

// ---- Playing back -----------------------------------------------------------------------------

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
  if (!IsPcieRecording(recording)) {
    ATOLL_RETURN_IF_ERROR(ReadPcapng(recording).status());
    return InvalidArgument("no session on PCIe is recorded there");
  }
  auto session = std::make_unique<RecordedPcieSession>();
  session->recording.assign(recording.begin(), recording.end());
  ATOLL_ASSIGN_OR_RETURN(const std::vector<PcapngPacket> packets, ReadPcapng(session->recording));
  for (const PcapngPacket& packet : packets) {
    if (packet.link_type == kLinkTypeUser0) ATOLL_RETURN_IF_ERROR(session->Add(packet.bytes));
  }
  if (session->events.empty()) return InvalidArgument("nothing is recorded there");
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
  if (wanted.kind == PcieKind::kAwait && timed_out_) {
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
