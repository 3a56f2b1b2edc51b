// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/emulated_pcie.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "driver/pcie/device_memory.h"
#include "driver/pcie/page_memory.h"
#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"

namespace atollrt {
namespace {

// Addresses that the IOMMU gives: 39 bits, as small ones of real computers have.
constexpr uint64_t kIovaBegin = uint64_t{1} << 32;
constexpr uint64_t kIovaEnd = uint64_t{1} << 39;

Status TransfersCancelled() { return Status(StatusCode::kCancelled, "the wait was cancelled"); }

// What the device may reach. Thread-safe: nothing is taken away while a copy is under way.
class Iommu {
 public:
  // The address of the first byte; 0 if there is no room. They follow each other through the whole
  // range, with a page between them that nobody has, before one is used again.
  uint64_t Add(std::span<uint8_t> bytes, DmaDirection direction) {
    const uint64_t in_page = reinterpret_cast<uintptr_t>(bytes.data()) % kDmaPageBytes;
    if (bytes.size() > kIovaEnd - kIovaBegin - 2 * kDmaPageBytes) return 0;
    const uint64_t size = AlignUp(in_page + bytes.size(), kDmaPageBytes) + kDmaPageBytes;
    const std::lock_guard<std::mutex> lock(mutex_);
    uint64_t page = FindRoom(next_, kIovaEnd, size);
    if (page == 0) page = FindRoom(kIovaBegin, kIovaEnd, size);
    if (page == 0) return 0;
    next_ = page + size;
    regions_.emplace(page + in_page, Region{bytes, direction});
    return page + in_page;
  }

  void Remove(uint64_t iova) {
    const std::lock_guard<std::mutex> lock(mutex_);
    regions_.erase(iova);
  }
  void RemoveAll() {
    const std::lock_guard<std::mutex> lock(mutex_);
    regions_.clear();
  }

  // Hands the bytes at `address` to `copy`, if all may be reached in `direction`; else false, and
  // the first that may not in `*fault`.
  template <typename Copy>
  bool Reach(uint64_t address, size_t size_bytes, DmaDirection direction, uint64_t* fault,
             const Copy& copy) {
    const std::lock_guard<std::mutex> lock(mutex_);
    *fault = address;
    auto found = regions_.upper_bound(address);
    if (found == regions_.begin()) return false;
    --found;
    const auto& [iova, region] = *found;
    if (region.direction != direction && region.direction != DmaDirection::kBoth) return false;
    const uint64_t offset = address - iova;
    if (offset >= region.bytes.size()) return false;
    if (size_bytes > region.bytes.size() - offset) {
      *fault = iova + region.bytes.size();
      return false;
    }
    copy(region.bytes.data() + offset);
    return true;
  }

 private:
  struct Region {
    std::span<uint8_t> bytes;
    DmaDirection direction;
  };

  // The first page from `begin` on with `size_bytes` free behind it, that end before `end`; or 0.
  uint64_t FindRoom(uint64_t begin, uint64_t end, uint64_t size_bytes) const {
    uint64_t page = begin;
    auto next = regions_.lower_bound(begin);
    if (next != regions_.begin()) page = std::max(page, EndOf(*std::prev(next)));
    for (; next != regions_.end() && next->first < page + size_bytes; ++next) page = EndOf(*next);
    return page <= end && size_bytes <= end - page ? page : 0;
  }
  static uint64_t EndOf(const std::pair<const uint64_t, Region>& entry) {
    return AlignUp(entry.first + entry.second.bytes.size(), kDmaPageBytes) + kDmaPageBytes;
  }

  std::mutex mutex_;
  std::map<uint64_t, Region> regions_;  // by the address of the first byte
  uint64_t next_ = kIovaBegin;
};

class EmulatedMapping final : public DmaMapping {
 public:
  EmulatedMapping(std::shared_ptr<Iommu> iommu, PageMemory memory, std::span<uint8_t> bytes,
                  uint64_t iova)
      : DmaMapping(bytes, iova), iommu_(std::move(iommu)), memory_(std::move(memory)) {}
  ~EmulatedMapping() override { iommu_->Remove(iova()); }

 private:
  const std::shared_ptr<Iommu> iommu_;
  const PageMemory memory_;  // that `bytes` are in, unless they are the caller's
};

}  // namespace

class EmulatedPcie::Slot final : public PcieUpstream {
 public:
  ~Slot() { iommu_->RemoveAll(); }

  Status Plug(const CoreOptions& options) {
    ATOLL_ASSIGN_OR_RETURN(endpoint_, PcieEndpoint::Create(options, this));
    endpoint_->set_stop(StopSignal(&interrupters_));
    return Status();
  }

  bool ReadMemory(uint64_t address, std::span<uint8_t> destination, uint64_t* fault) override {
    return iommu_->Reach(
        address, destination.size(), DmaDirection::kToDevice, fault,
        [&](const uint8_t* bytes) { std::memcpy(destination.data(), bytes, destination.size()); });
  }
  bool WriteMemory(uint64_t address, std::span<const uint8_t> source, uint64_t* fault) override {
    return iommu_->Reach(address, source.size(), DmaDirection::kFromDevice, fault,
                         [&](uint8_t* bytes) { StoreAsDevice(source, bytes); });
  }
  void RaiseInterrupt(uint32_t vector) override {
    if (vector < vectors_) raised_ |= uint64_t{1} << vector;
  }

  // Calls `access` with the endpoint, between two Steps of who waits for interrupts.
  template <typename Access>
  auto Register(const Access& access) {
    ++callers_;
    const std::lock_guard<std::mutex> lock(mutex_);
    --callers_;
    activity_.notify_all();
    return access(*endpoint_);
  }
  // Of who polls registers.
  void Poll() {
    const bool drives = waiter_ == std::thread::id() || waiter_ == std::this_thread::get_id();
    if (drives && !cancelled_) Step();
  }

  Result<std::unique_ptr<DmaMapping>> Map(PageMemory memory, std::span<uint8_t> bytes,
                                          DmaDirection direction) {
    if (bytes.empty()) return InvalidArgument("a mapping of no bytes");
    const uint64_t iova = iommu_->Add(bytes, direction);
    if (iova == 0) {
      return ResourceExhausted("the emulated IOMMU has no room for %zu bytes", bytes.size());
    }
    return std::unique_ptr<DmaMapping>(
        std::make_unique<EmulatedMapping>(iommu_, std::move(memory), bytes, iova));
  }

  Status EnableInterrupts(uint32_t count) {
    if (count > kRingVectors) {
      return Unsupported("%u interrupt vectors, the device has %u", count, kRingVectors);
    }
    Register([&](PcieEndpoint&) {
      vectors_ = count;
      raised_ = 0;
    });
    return Status();
  }

  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline);
  void Interrupt(bool resets);

  PcieEndpoint& endpoint() { return *endpoint_; }

 private:
  // An instruction that somebody has interrupted may be half done: nothing but Reset is left to do.
  bool Step() {
    const bool has_worked = endpoint_->Step();
    if (interrupters_.load() != 0) cancelled_ = true;
    return has_worked;
  }

  // The answer to waits that see nothing until their deadline: made once, so that they allocate
  // nothing.
  const Status nothing_came_ = Timeout("no interrupt came");
  const std::shared_ptr<Iommu> iommu_ = std::make_shared<Iommu>();
  std::mutex mutex_;
  std::condition_variable activity_;        // a register written, Cancel or Reset, a turn taken
  std::unique_ptr<PcieEndpoint> endpoint_;  // guarded by mutex_
  uint32_t vectors_ = 0;                    // connected; guarded by mutex_
  uint64_t raised_ = 0;                     // a bit for each vector; guarded by mutex_
  bool cancelled_ = false;                  // guarded by mutex_
  std::thread::id waiter_;                  // that waited last; guarded by mutex_
  std::atomic<int> callers_{0};             // that wait for their turn
  std::atomic<uint64_t> interruptions_{0};  // Cancels and Resets so far
  // Of these, those that wait for the mutex. They leave only with it, so whoever has it and sees
  // none has not been disturbed.
  std::atomic<int> interrupters_{0};
};

Result<uint64_t> EmulatedPcie::Slot::AwaitInterrupts(uint64_t vectors, Deadline deadline) {
  const uint64_t interruptions = interruptions_.load();
  std::unique_lock<std::mutex> lock(mutex_);
  waiter_ = std::this_thread::get_id();
  bool is_late = false;
  for (;;) {
    if (cancelled_ || interrupters_.load() != 0 || interruptions_.load() != interruptions) {
      return TransfersCancelled();
    }
    if (const uint64_t seen = raised_ & vectors; seen != 0) {
      raised_ &= ~seen;
      return seen;
    }
    if (is_late) return nothing_came_;
    is_late = Clock::now() >= deadline;
    if (callers_.load() != 0) {
      activity_.wait_until(lock, deadline, [&] { return callers_.load() == 0; });
    } else if (!Step() && !is_late && (raised_ & vectors) == 0 && !cancelled_) {
      activity_.wait_until(lock, deadline);
    }
  }
}

void EmulatedPcie::Slot::Interrupt(bool resets) {
  ++interruptions_;  // seen between instructions, by whoever holds the mutex
  ++interrupters_;   // and within long ones
  const std::lock_guard<std::mutex> lock(mutex_);
  --interrupters_;
  cancelled_ = !resets;
  if (resets) {
    ++interruptions_;  // and by waits that began in the meantime
    endpoint_->Reset();
    vectors_ = 0;
    raised_ = 0;
    waiter_ = {};
  }
  activity_.notify_all();
}

EmulatedPcie::EmulatedPcie(std::unique_ptr<Slot> slot) : slot_(std::move(slot)) {}
EmulatedPcie::~EmulatedPcie() = default;

Result<std::unique_ptr<EmulatedPcie>> EmulatedPcie::Create(const CoreOptions& options) {
  auto slot = std::make_unique<Slot>();
  ATOLL_RETURN_IF_ERROR(slot->Plug(options));
  return std::unique_ptr<EmulatedPcie>(new EmulatedPcie(std::move(slot)));
}

namespace {

Status CheckRegister(uint32_t bar, uint64_t offset, uint64_t width) {
  if (bar != kRegisterBar || offset > kRegisterBarBytes - width || offset % width != 0) {
    return InvalidArgument("BAR %u has no register of %llu bytes at %llX", bar,
                           static_cast<unsigned long long>(width),
                           static_cast<unsigned long long>(offset));
  }
  return Status();
}

}  // namespace

Result<uint32_t> EmulatedPcie::Read32(uint32_t bar, uint64_t offset) {
  ATOLL_RETURN_IF_ERROR(CheckRegister(bar, offset, 4));
  return slot_->Register([&](PcieEndpoint& endpoint) {
    slot_->Poll();
    return endpoint.Read32(offset);
  });
}

Result<uint64_t> EmulatedPcie::Read64(uint32_t bar, uint64_t offset) {
  ATOLL_RETURN_IF_ERROR(CheckRegister(bar, offset, 8));
  return slot_->Register([&](PcieEndpoint& endpoint) {
    slot_->Poll();
    const uint64_t low = endpoint.Read32(offset);
    return low | uint64_t{endpoint.Read32(offset + 4)} << 32;
  });
}

Status EmulatedPcie::Write32(uint32_t bar, uint64_t offset, uint32_t value) {
  ATOLL_RETURN_IF_ERROR(CheckRegister(bar, offset, 4));
  slot_->Register([&](PcieEndpoint& endpoint) { endpoint.Write32(offset, value); });
  return Status();
}

Status EmulatedPcie::Write64(uint32_t bar, uint64_t offset, uint64_t value) {
  ATOLL_RETURN_IF_ERROR(CheckRegister(bar, offset, 8));
  slot_->Register([&](PcieEndpoint& endpoint) {
    endpoint.Write32(offset, static_cast<uint32_t>(value));
    endpoint.Write32(offset + 4, static_cast<uint32_t>(value >> 32));
  });
  return Status();
}

Result<std::unique_ptr<DmaMapping>> EmulatedPcie::Map(std::span<uint8_t> memory,
                                                      DmaDirection direction) {
  return slot_->Map(PageMemory(), memory, direction);
}

Result<std::unique_ptr<DmaMapping>> EmulatedPcie::Allocate(uint64_t size_bytes,
                                                           DmaDirection direction) {
  ATOLL_ASSIGN_OR_RETURN(PageMemory memory, PageMemory::Allocate(size_bytes));
  const std::span<uint8_t> bytes = memory.bytes();
  return slot_->Map(std::move(memory), bytes, direction);
}

Status EmulatedPcie::EnableInterrupts(uint32_t count) { return slot_->EnableInterrupts(count); }

Result<uint64_t> EmulatedPcie::AwaitInterrupts(uint64_t vectors, Deadline deadline) {
  return slot_->AwaitInterrupts(vectors, deadline);
}

void EmulatedPcie::Cancel() { slot_->Interrupt(false); }

Status EmulatedPcie::Reset(Deadline) {
  slot_->Interrupt(true);
  return Status();
}

PcieEndpoint& EmulatedPcie::endpoint() { return slot_->endpoint(); }

Result<std::vector<PcieDeviceInfo>> EmulatedPcieBus::List() {
  std::vector<PcieDeviceInfo> list;
  for (size_t i = 0; i < devices_.size(); ++i) {
    list.push_back({.id = kAtollPcieId,
                    .address = Format("0000:%02zx:00.0", i + 1),
                    .driver = {},
                    .link_lanes = 1,
                    .link_generation = 2});
  }
  return list;
}

Result<std::unique_ptr<PcieFunction>> EmulatedPcieBus::Open(const PcieDeviceInfo& device) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<PcieDeviceInfo> list, List());
  const auto found = std::find_if(list.begin(), list.end(), [&](const PcieDeviceInfo& entry) {
    return entry.address == device.address;
  });
  if (found == list.end()) return DeviceLost("no device at %s", device.address.c_str());
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<EmulatedPcie> function,
                         EmulatedPcie::Create(devices_[static_cast<size_t>(found - list.begin())]));
  return std::unique_ptr<PcieFunction>(std::move(function));
}

bool EmulatedPcieBus::WaitForChange(uint64_t seen, Deadline deadline) {
  if (seen != 0) return true;
  std::this_thread::sleep_until(deadline);
  return false;
}

}  // namespace atollrt
