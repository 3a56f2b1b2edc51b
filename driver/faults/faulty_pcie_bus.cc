// SPDX-License-Identifier: Apache-2.0
#include "driver/faults/faulty_pcie_bus.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "driver/atoll1/protocol.h"
#include "driver/atoll1/ring.h"
#include "driver/pcie/page_memory.h"

namespace atollrt {
namespace {

using std::chrono::milliseconds;

// Of the function below when it is unplugged.
constexpr milliseconds kStopTimeout{1000};
// How often a wait for nothing looks whether it was cancelled.
constexpr milliseconds kCancelLook{20};
// Between places where an event may lie.
constexpr size_t kEventAlignment = 8;
constexpr uint8_t kDamageBits = 0x5A;

// With these a host asks whether it must go on waiting; how often depends on how long that takes.
bool TellsHowFarItIs(uint32_t bar, uint64_t offset) {
  if (bar != kRegisterBar) return false;
  return offset == static_cast<uint32_t>(Register::kId) ||
         offset == static_cast<uint32_t>(Register::kStatus) ||
         offset == static_cast<uint32_t>(RingRegister::kRingStatus) ||
         offset == static_cast<uint32_t>(RingRegister::kRingHead);
}

}  // namespace

class FaultyPcieBus::Function final : public PcieFunction {
 public:
  Function(std::shared_ptr<FaultRun> run, std::unique_ptr<PcieFunction> inner,
           FaultRun::Visit visit, bool is_atoll)
      : run_(std::move(run)),
        inner_(std::move(inner)),
        visit_(std::move(visit)),
        is_atoll_(is_atoll) {}

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override {
    return Read<uint32_t>(bar, offset, [&] { return inner_->Read32(bar, offset); });
  }
  Result<uint64_t> Read64(uint32_t bar, uint64_t offset) override {
    return Read<uint64_t>(bar, offset, [&] { return inner_->Read64(bar, offset); });
  }
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override {
    return Write(bar, offset, value, [&] { return inner_->Write32(bar, offset, value); });
  }
  Status Write64(uint32_t bar, uint64_t offset, uint64_t value) override {
    return Write(bar, offset, value, [&] { return inner_->Write64(bar, offset, value); });
  }

  bool maps_callers_memory() const override { return inner_->maps_callers_memory(); }
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory,
                                          DmaDirection direction) override {
    if (!IsThere()) return Gone();
    ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<DmaMapping> below, inner_->Map(memory, direction));
    return Keep(std::move(below), PageMemory(), /*is_ours=*/false, direction);
  }
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size_bytes,
                                               DmaDirection direction) override {
    if (!IsThere()) return Gone();
    if (!inner_->maps_callers_memory()) {
      ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<DmaMapping> below,
                             inner_->Allocate(size_bytes, direction));
      return Keep(std::move(below), PageMemory(), /*is_ours=*/true, direction);
    }
    // Of this bus, so that it stays where it is when the device no longer reaches it.
    ATOLL_ASSIGN_OR_RETURN(PageMemory memory, PageMemory::Allocate(size_bytes));
    ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<DmaMapping> below,
                           inner_->Map(memory.bytes(), direction));
    return Keep(std::move(below), std::move(memory), /*is_ours=*/true, direction);
  }

  Status EnableInterrupts(uint32_t count) override {
    if (!IsThere()) return Gone();
    ForgetInterrupts();
    return inner_->EnableInterrupts(count);
  }
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override;

  void Cancel() override {
    cancelled_ = true;
    inner_->Cancel();
  }

  Status Reset(Deadline deadline) override {
    if (!IsThere()) return Gone();
    ForgetInterrupts();
    cancelled_ = false;
    {
      const std::lock_guard lock(mutex_);
      last_write_.reset();
      read_.clear();
    }
    if (const auto fault = run_->Next(visit_.place, FaultWhere::kReset, 0)) {
      switch (fault->what) {
        case FaultWhat::kDelay:
          ATOLL_RETURN_IF_ERROR(run_->Delay(*fault, deadline));
          break;
        case FaultWhat::kUnplug:
          Unplug(*fault);
          return Gone();
        default:
          return run_->Lose(deadline);
      }
    }
    return run_->Passed(inner_->Reset(run_->InnerDeadline(deadline)), deadline);
  }

  bool is_present() override { return IsThere() && inner_->is_present(); }

 private:
  class Mapping;

  Status Gone() const {
    return DeviceLost("the function at %s is not there", visit_.place.c_str());
  }
  // Whether the function is there, as when it was opened.
  bool IsThere() {
    const bool is_there = run_->Reach(visit_);
    if (!is_there) StopBelow();
    return is_there;
  }
  void Unplug(const PlannedFault& fault) {
    run_->Unplug(visit_.place, fault);
    StopBelow();
  }
  // What is gone writes to no memory; who waits for it learns that.
  void StopBelow() {
    if (stopped_.exchange(true)) return;
    inner_->Cancel();
    (void)inner_->Reset(Clock::now() + kStopTimeout).ok();
    inner_->Cancel();
  }

  template <typename T, typename ReadBelow>
  Result<T> Read(uint32_t bar, uint64_t offset, const ReadBelow& read_below) {
    constexpr T kOnes = ~T{0};
    if (!IsThere()) return kOnes;
    bool counts = !is_atoll_ || !TellsHowFarItIs(bar, offset);
    if (counts) {
      const std::lock_guard lock(mutex_);
      counts = read_.emplace(bar, offset).second;
    }
    if (!counts) return read_below();
    const auto fault = run_->Next(visit_.place, FaultWhere::kRead, sizeof(T));
    if (!fault.has_value()) return read_below();
    switch (fault->what) {
      case FaultWhat::kDrop:  // no completion: the root complex makes ones
        return kOnes;
      case FaultWhat::kDelay:
        run_->SleepUntil(run_->now() + fault->time);
        return read_below();
      case FaultWhat::kUnplug:
        Unplug(*fault);
        return kOnes;
      default:
        break;
    }
    ATOLL_ASSIGN_OR_RETURN(const T value, read_below());
    return value ^ T { kDamageBits };
  }

  template <typename WriteBelow>
  Status Write(uint32_t bar, uint64_t offset, uint64_t value, const WriteBelow& write_below) {
    if (!IsThere()) return {};
    std::optional<PlannedFault> fault;
    {
      const std::lock_guard lock(mutex_);
      const std::tuple write(bar, offset, value);
      if (write == last_write_) return write_below();
      last_write_ = write;
      read_.clear();
      const uint64_t number = run_->Count(visit_.place, FaultWhere::kWrite);
      fault = run_->plan().Find(FaultWhere::kWrite, number, mappings_.size());
      Answer(run_->plan().Find(FaultWhere::kVector, number, kRingEventBytes - 1));
    }
    if (!fault.has_value()) return write_below();
    run_->Happens(*fault);
    switch (fault->what) {
      case FaultWhat::kDrop:  // posted: nobody is told
        return {};
      case FaultWhat::kDelay:
        run_->SleepUntil(run_->now() + fault->time);
        break;
      case FaultWhat::kUnplug:
        Unplug(*fault);
        return {};
      case FaultWhat::kRepeat:
        ATOLL_RETURN_IF_ERROR(write_below());
        break;
      case FaultWhat::kUnmap:
        Unmap(fault->bytes);
        break;
      default:
        break;
    }
    return write_below();
  }

  Result<std::unique_ptr<DmaMapping>> Keep(std::unique_ptr<DmaMapping> below, PageMemory memory,
                                           bool is_ours, DmaDirection direction);
  void Unmap(uint64_t which);

  // With the mutex held: `fault` happens to what the device answers to the write that comes now.
  void Answer(std::optional<PlannedFault> fault);
  // Damages what the device has written since then, if that shall be.
  void Damage();
  void ForgetInterrupts() {
    const std::lock_guard lock(mutex_);
    once_more_ = 0;
    late_ = 0;
  }
  Result<uint64_t> WaitForNothing(Deadline deadline);

  const std::shared_ptr<FaultRun> run_;
  const std::unique_ptr<PcieFunction> inner_;
  const FaultRun::Visit visit_;  // on which it was opened
  const bool is_atoll_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> stopped_{false};

  std::mutex mutex_;                // guards what follows
  std::vector<Mapping*> mappings_;  // in the order in which they were made
  std::optional<std::tuple<uint32_t, uint64_t, uint64_t>> last_write_;  // BAR, offset, value
  std::set<std::pair<uint32_t, uint64_t>> read_;  // BARs and offsets, since the last write
  std::optional<PlannedFault> answer_;            // what happens to the next answer
  uint64_t once_more_ = 0;                        // vectors that are reported again
  uint64_t late_ = 0;                             // vectors that are reported at that time
  Deadline late_until_{};
};

// Made and destroyed by any thread; what is in it is guarded by the function's mutex.
class FaultyPcieBus::Function::Mapping final : public DmaMapping {
 public:
  Mapping(Function* function, std::unique_ptr<DmaMapping> below, PageMemory memory, bool is_ours,
          DmaDirection direction)
      : DmaMapping(below->bytes(), below->iova()),
        function_(*function),
        memory_(std::move(memory)),
        below_(std::move(below)),
        is_damageable_(is_ours && direction != DmaDirection::kToDevice),
        stays_(is_ours && memory_.bytes().empty()) {}
  ~Mapping() override {
    const std::lock_guard lock(function_.mutex_);
    std::erase(function_.mappings_, this);
  }

  void Unmap() {
    if (!stays_) below_ = nullptr;
  }

  // What the device wrote since Remember.
  void Remember() {
    if (is_damageable_) before_.assign(bytes().begin(), bytes().end());
  }
  // Damages one byte of it, by `number`; false if there is none that may be.
  bool Damage(bool is_atoll, uint64_t number) {
    const std::span<uint8_t> now = bytes();
    if (before_.size() != now.size()) return false;
    if (!is_atoll) {
      const auto [a, b] = std::mismatch(now.begin(), now.end(), before_.begin());
      if (a != now.end()) *a ^= kDamageBits;
      return a != now.end();
    }
    for (size_t at = 0; at + kRingEventBytes <= now.size(); at += kEventAlignment) {
      if (std::equal(now.begin() + static_cast<ptrdiff_t>(at),
                     now.begin() + static_cast<ptrdiff_t>(at + kRingEventBytes),
                     before_.begin() + static_cast<ptrdiff_t>(at)) ||
          !DecodeRingEvent(now.subspan(at).first<kRingEventBytes>()).ok()) {
        continue;
      }
      now[at + number % kRingEventBytes] ^= kDamageBits;
      return true;
    }
    return false;
  }
  void Forget() { before_ = {}; }

 private:
  Function& function_;
  const PageMemory memory_;
  std::unique_ptr<DmaMapping> below_;  // nullptr: the device does not reach it any more
  const bool is_damageable_;
  const bool stays_;             // the memory goes with the mapping below
  std::vector<uint8_t> before_;  // empty: nobody wants to know
};

Result<std::unique_ptr<DmaMapping>> FaultyPcieBus::Function::Keep(std::unique_ptr<DmaMapping> below,
                                                                  PageMemory memory, bool is_ours,
                                                                  DmaDirection direction) {
  auto mapping =
      std::make_unique<Mapping>(this, std::move(below), std::move(memory), is_ours, direction);
  const std::lock_guard lock(mutex_);
  mappings_.push_back(mapping.get());
  return std::unique_ptr<DmaMapping>(std::move(mapping));
}

void FaultyPcieBus::Function::Unmap(uint64_t which) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < mappings_.size(); ++i) {
    if (which == 0 || i == (which - 1) % mappings_.size()) mappings_[i]->Unmap();
  }
}

void FaultyPcieBus::Function::Answer(std::optional<PlannedFault> fault) {
  if (!fault.has_value()) return;
  answer_ = fault;
  for (Mapping* mapping : mappings_) {
    fault->what == FaultWhat::kCorrupt ? mapping->Remember() : mapping->Forget();
  }
}

void FaultyPcieBus::Function::Damage() {
  const std::lock_guard lock(mutex_);
  if (!answer_.has_value() || answer_->what != FaultWhat::kCorrupt) return;
  const bool damaged = std::any_of(mappings_.begin(), mappings_.end(), [&](Mapping* mapping) {
    return mapping->Damage(is_atoll_, answer_->bytes);
  });
  if (!damaged) return;
  run_->Happens(*answer_);
  answer_.reset();
  for (Mapping* mapping : mappings_) mapping->Forget();
}

// As long as nothing comes from a function that is gone.
Result<uint64_t> FaultyPcieBus::Function::WaitForNothing(Deadline deadline) {
  for (;;) {
    if (cancelled_) return Status(StatusCode::kCancelled, "cancelled");
    const Deadline now = run_->now();
    if (now >= deadline) return Timeout("no interrupt came");
    run_->SleepUntil(run_->real_time() ? std::min(deadline, now + kCancelLook) : deadline);
  }
}

Result<uint64_t> FaultyPcieBus::Function::AwaitInterrupts(uint64_t vectors, Deadline deadline) {
  for (;;) {
    if (!IsThere()) return WaitForNothing(deadline);
    Deadline until = deadline;
    {
      const std::lock_guard lock(mutex_);
      if (const uint64_t again = std::exchange(once_more_, once_more_ & ~vectors) & vectors) {
        return again;
      }
      if ((late_ & vectors) != 0) {
        if (run_->now() >= late_until_) return std::exchange(late_, late_ & ~vectors) & vectors;
        until = std::min(until, late_until_);
      }
    }
    Result<uint64_t> raised =
        run_->Passed(inner_->AwaitInterrupts(vectors, run_->InnerDeadline(until)), until);
    if (!IsThere()) continue;
    Damage();
    if (raised.code() == StatusCode::kTimeout && until < deadline) continue;
    if (!raised.ok()) return raised;
    std::optional<PlannedFault> fault;
    {
      const std::lock_guard lock(mutex_);
      if (answer_.has_value() && answer_->what != FaultWhat::kCorrupt) {
        fault = std::exchange(answer_, std::nullopt);
      }
    }
    if (!fault.has_value()) return raised;
    run_->Happens(*fault);
    if (fault->what == FaultWhat::kUnplug) Unplug(*fault);
    const std::lock_guard lock(mutex_);
    if (fault->what == FaultWhat::kDelay) {
      late_ |= *raised;
      late_until_ = run_->now() + fault->time;
    }
    if (fault->what == FaultWhat::kRepeat) {
      once_more_ |= *raised;
      return raised;
    }
  }
}

FaultyPcieBus::FaultyPcieBus(std::shared_ptr<PcieBus> inner, FaultPlan plan, Options options)
    : inner_(std::move(inner)),
      run_(std::make_shared<FaultRun>(
          std::move(plan), std::move(options), [](const std::string& address, int n) {
            constexpr int kBus = 0x40, kBuses = 0x80;
            return address.substr(0, address.find(':')) +
                   Format(":%02x:00.0", static_cast<unsigned>(kBus + n % kBuses));
          })) {}

FaultyPcieBus::~FaultyPcieBus() = default;

uint64_t FaultyPcieBus::faults() const { return run_->faults(); }

Result<std::vector<PcieDeviceInfo>> FaultyPcieBus::List() {
  ATOLL_ASSIGN_OR_RETURN(std::vector<PcieDeviceInfo> devices, inner_->List());
  std::vector<PcieDeviceInfo> present;
  for (PcieDeviceInfo& device : devices) {
    const auto address = run_->Find(device.address);
    if (!address.has_value()) continue;
    device.address = *address;
    present.push_back(std::move(device));
  }
  std::sort(present.begin(), present.end(),
            [](const PcieDeviceInfo& a, const PcieDeviceInfo& b) { return a.address < b.address; });
  return present;
}

Result<std::unique_ptr<PcieFunction>> FaultyPcieBus::Open(const PcieDeviceInfo& device) {
  ATOLL_ASSIGN_OR_RETURN(FaultRun::Visit visit, run_->Open(device.address));
  PcieDeviceInfo inner_device = device;
  inner_device.address = visit.place;
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<PcieFunction> function, inner_->Open(inner_device));
  return std::unique_ptr<PcieFunction>(std::make_unique<Function>(
      run_, std::move(function), std::move(visit), device.id == kAtollPcieId));
}

uint64_t FaultyPcieBus::generation() { return inner_->generation() + run_->changes(); }

bool FaultyPcieBus::WaitForChange(uint64_t seen, Deadline deadline) {
  return run_->WaitForChange([this] { return generation(); }, seen, deadline);
}

}  // namespace atollrt
