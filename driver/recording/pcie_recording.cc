// SPDX-License-Identifier: Apache-2.0
#include "driver/recording/pcie_recording.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "driver/pcie/device_memory.h"
#include "driver/pcie/page_memory.h"
#include "driver/recording/recorded_pcie_session.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr uint32_t kPcieTextInterface = 0;
// Changes that are no further apart are recorded as one.
constexpr size_t kGapBytes = 64;
// Packets are cut there, as Wireshark takes no longer ones than 256 KiB.
constexpr size_t kMemoryPieceBytes = size_t{128} << 10;

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

}  // namespace atollrt
