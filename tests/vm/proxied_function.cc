// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/proxied_function.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "driver/pcie/pcie_bus.h"

namespace atollrt {
namespace {

// Configuration space (PCI 3.0, section 6; PCI Express 4.0, section 7). To QEMU the function is one
// of conventional PCI: 256 bytes, and base addresses of 32 bits.
constexpr uint32_t kCommand = 0x04, kStatus = 0x06, kRevision = 0x08, kClass = 0x0A;
constexpr uint32_t kCacheLine = 0x0C, kBar0 = 0x10, kSubsystem = 0x2C, kCapabilities = 0x34;
constexpr uint32_t kInterruptLine = 0x3C;
constexpr uint32_t kMemoryOn = 1, kMasterOn = 2;  // bits of the command
constexpr uint32_t kExpress = 0x40;
constexpr uint32_t kExpressId = 0x10;
constexpr uint32_t kDeviceCapabilities = kExpress + 0x04, kDeviceControl = kExpress + 0x08;
constexpr uint32_t kLinkCapabilities = kExpress + 0x0C, kLinkStatus = kExpress + 0x12;
constexpr uint32_t kFlrByte = kDeviceControl + 1, kFlr = 0x80;
constexpr uint32_t kPower = 0xA0;
constexpr uint32_t kPowerId = 0x01, kPowerControl = kPower + 4, kNoSoftReset = 1 << 3;
constexpr uint32_t kMsix = 0x80;
constexpr uint32_t kMsixId = 0x11;
constexpr uint32_t kMsixControl = kMsix + 2, kMaskAll = 14, kMsixOn = 15;  // bits of the control

constexpr int kMsixBar = 2;
constexpr uint32_t kPendingOffset = 0x800;
constexpr uint32_t kBarBytes = kRegisterBarBytes;  // of either
constexpr uint32_t kOnes = ~0u;

// Beyond what any driver gives, and within what three levels of the IOMMU's tables reach.
constexpr uint64_t kAstray = uint64_t{1} << 37;

}  // namespace

class ProxiedFunction::Access {
 public:
  explicit Access(ProxiedFunction* function) : function_(function) {
    ++function->accesses_;
    lock_ = std::unique_lock(function->mutex_);
    --function->accesses_;
  }
  ~Access() {
    lock_.unlock();
    function_->changed_.notify_all();
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  ProxiedFunction* const function_;
  std::unique_lock<std::mutex> lock_;
};

Result<std::unique_ptr<ProxiedFunction>> ProxiedFunction::Create(const CoreOptions& options,
                                                                 const GuestMemory* memory,
                                                                 Qtest* qtest) {
  std::unique_ptr<ProxiedFunction> function(new ProxiedFunction(memory, qtest));
  ATOLL_ASSIGN_OR_RETURN(function->endpoint_,
                         PcieEndpoint::Create(options, static_cast<PcieUpstream*>(function.get())));
  function->PowerOn();
  function->thread_ = std::thread([function = function.get()] { function->Work(); });
  return function;
}

ProxiedFunction::~ProxiedFunction() {
  {
    const Access access(this);
    ends_ = true;
  }
  thread_.join();
}

// ---- Configuration space ------------------------------------------------------------------------

bool ProxiedFunction::bit(uint32_t offset, uint32_t bit) const {
  return (configuration_[offset + bit / 8] >> (bit % 8) & 1) != 0;
}
uint32_t ProxiedFunction::word(uint32_t offset) const {
  uint32_t value = 0;
  std::memcpy(&value, &configuration_[offset], sizeof value);
  return value;
}
void ProxiedFunction::set(uint32_t offset, uint32_t bytes, uint32_t value) {
  std::memcpy(&configuration_[offset], &value, bytes);
}
void ProxiedFunction::set_writable(uint32_t offset, uint32_t bytes, uint32_t mask) {
  std::memcpy(&writable_[offset], &mask, bytes);
}

void ProxiedFunction::PowerOn() {
  configuration_.fill(0);
  writable_.fill(0);
  set(0x00, 2, kAtollPcieId.vendor);
  set(0x02, 2, kAtollPcieId.device);
  set_writable(kCommand, 2, 0x0406);  // no INTx, bus master, memory
  // It has capabilities, and answers in configuration space at once after a reset. Linux waits more
  // than a minute for one that does not say so, or has no power management, and is gone.
  set(kStatus, 2, 0x0011);
  set(kRevision, 1, 1);
  set(kClass, 2, 0x1200);  // a processing accelerator
  set_writable(kCacheLine, 1, 0xFF);
  set_writable(kInterruptLine, 1, 0xFF);
  set_writable(kBar0, 4, ~(kBarBytes - 1));
  set_writable(kBar0 + 4 * kMsixBar, 4, ~(kBarBytes - 1));
  set(kSubsystem, 2, kAtollPcieId.vendor);
  set(kSubsystem + 2, 2, 1);
  set(kCapabilities, 1, kExpress);
  set(kExpress, 4, kExpressId | kMsix << 8 | 0x0002u << 16);  // version 2, an endpoint
  set(kDeviceCapabilities, 4, 1u << 28 | 1u << 15);           // has FLR
  set_writable(kDeviceControl, 2, 0x7FFF);
  constexpr uint32_t kOneLaneOfGeneration2 = 1 << 4 | 2;
  set(kLinkCapabilities, 4, kOneLaneOfGeneration2);
  set(kLinkStatus, 2, kOneLaneOfGeneration2);
  set(kMsix, 4, kMsixId | kPower << 8 | (kRingVectors - 1) << 16);
  set(kMsix + 4, 4, kMsixBar);
  set(kMsix + 8, 4, kPendingOffset | kMsixBar);
  set_writable(kMsixControl, 2, 1u << kMsixOn | 1u << kMaskAll);
  set(kPower, 4, kPowerId | 0x0003u << 16);  // version 3
  set(kPowerControl, 4, kNoSoftReset);
  set_writable(kPowerControl, 2, 0x0003);
  ResetFunction();
}

// FLR, which leaves what hardware is (PCI Express 4.0, section 6.6.2), and takes what software
// wrote.
void ProxiedFunction::ResetFunction() {
  for (size_t i = 0; i < configuration_.size(); ++i) {
    configuration_[i] &= static_cast<uint8_t>(~writable_[i]);
  }
  vectors_.fill(Vector());
  raised_ = pending_ = 0;
  may_work_ = false;
  endpoint_->Reset();
}

uint32_t ProxiedFunction::ReadConfiguration(uint32_t offset, uint32_t bytes) {
  const Access access(this);
  CountEvent();
  if (!is_present_) return kOnes >> (32 - 8 * bytes);
  uint32_t value = 0;
  if (offset + bytes <= configuration_.size()) std::memcpy(&value, &configuration_[offset], bytes);
  return value;
}

void ProxiedFunction::WriteConfiguration(uint32_t offset, uint32_t bytes, uint32_t value) {
  const Access access(this);
  CountEvent();
  if (!is_present_) return;
  bool resets = false;
  for (uint32_t i = offset; i < offset + bytes && i < configuration_.size(); ++i, value >>= 8) {
    const auto byte = static_cast<uint8_t>(value);
    configuration_[i] =
        static_cast<uint8_t>((configuration_[i] & ~writable_[i]) | (byte & writable_[i]));
    if (i == kFlrByte && (byte & kFlr) != 0) resets = true;
  }
  if (resets) ResetFunction();
  // Who switches on bus mastering has set up the IOMMU, and who unmasks vectors waits for them.
  iommu_changes_ = true;
  raised_ |= std::exchange(pending_, 0);
}

// ---- Registers and the MSI-X table --------------------------------------------------------------

int ProxiedFunction::Decode(uint64_t address, uint64_t* offset) const {
  if (!is_present_ || !bit(kCommand, kMemoryOn)) return -1;
  for (const int bar : {static_cast<int>(kRegisterBar), kMsixBar}) {
    const uint64_t base = word(kBar0 + 4 * static_cast<uint32_t>(bar));
    if (address < base || address >= base + kBarBytes) continue;
    *offset = address - base;
    return bar;
  }
  return -1;
}

uint32_t* ProxiedFunction::TableWord(uint64_t offset) {
  if (offset / 16 >= vectors_.size()) return nullptr;
  return &vectors_[offset / 16].words[offset / 4 % 4];
}

uint32_t ProxiedFunction::ReadRegister(int bar, uint64_t offset) {
  if (bar == kRegisterBar) return endpoint_->Read32(offset);
  if (const uint32_t* table = TableWord(offset)) return *table;
  return offset == kPendingOffset ? pending_ : 0;
}

void ProxiedFunction::WriteRegister(int bar, uint64_t offset, uint32_t value) {
  if (bar == kRegisterBar) {
    endpoint_->Write32(offset, value);
    may_work_ = true;
    return;
  }
  if (uint32_t* table = TableWord(offset)) *table = value;
  raised_ |= std::exchange(pending_, 0);
}

uint64_t ProxiedFunction::ReadMemoryAt(uint64_t address, uint32_t bytes) {
  const Access access(this);
  CountEvent();
  uint64_t offset = 0;
  const int bar = Decode(address, &offset);
  if (bar < 0) return ~uint64_t{0} >> (64 - 8 * bytes);
  if (bytes == 8) {
    const uint64_t low = ReadRegister(bar, offset);
    return low | uint64_t{ReadRegister(bar, offset + 4)} << 32;
  }
  return bytes == 4 ? ReadRegister(bar, offset) : 0;
}

void ProxiedFunction::WriteMemoryAt(uint64_t address, uint32_t bytes, uint64_t value) {
  const Access access(this);
  CountEvent();
  uint64_t offset = 0;
  const int bar = Decode(address, &offset);
  if (bar < 0 || bytes < 4) return;
  WriteRegister(bar, offset, static_cast<uint32_t>(value));
  if (bytes == 8) WriteRegister(bar, offset + 4, static_cast<uint32_t>(value >> 32));
}

void ProxiedFunction::Reset() {
  const Access access(this);
  PowerOn();
}

// ---- Coming and going ---------------------------------------------------------------------------

void ProxiedFunction::CountEvent() {
  if (is_present_ && leaves_after_ > 0 && --leaves_after_ == 0) Leave();
}

void ProxiedFunction::Leave() {
  is_present_ = false;
  leaves_after_ = 0;
  raised_ = pending_ = 0;
  may_work_ = false;
  changed_.notify_all();
}

void ProxiedFunction::LeaveAfter(uint64_t events) {
  const Access access(this);
  if (!is_present_) return;
  leaves_after_ = events;
  if (events == 0) Leave();
}

bool ProxiedFunction::AwaitAbsence(Deadline deadline) {
  Access access(this);
  return changed_.wait_until(access.lock(), deadline, [this] { return !is_present_; });
}

void ProxiedFunction::ComeBack(Return how) {
  const Access access(this);
  if (is_present_) return;
  const std::array<uint8_t, 256> before = configuration_;
  PowerOn();
  if (how == Return::kFromLinkDown) configuration_ = before;
  is_present_ = true;
  iommu_changes_ = true;
}

bool ProxiedFunction::AwaitEvent(Deadline deadline) {
  Access access(this);
  events_reported_ = 0;
  return changed_.wait_until(access.lock(), deadline, [this] { return events_reported_ > 0; });
}

void ProxiedFunction::GoAstray() {
  const Access access(this);
  goes_astray_ = true;
  has_strayed_ = false;
}

bool ProxiedFunction::AwaitStray(Deadline deadline, Stray* stray) {
  Access access(this);
  const bool came = changed_.wait_until(access.lock(), deadline, [this] { return has_strayed_; });
  *stray = stray_;
  return came;
}

// ---- Work ---------------------------------------------------------------------------------------

void ProxiedFunction::Work() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (raised_ != 0) {
      Deliver(std::exchange(raised_, 0), lock);
      continue;
    }
    if (!may_work_ || !is_present_) {
      changed_.wait(lock);
      continue;
    }
    // What asks QEMU does so without the mutex: QEMU may be waiting for an access.
    if (std::exchange(iommu_changes_, false)) {
      lock.unlock();
      iommu_.ReadRegisters();
      lock.lock();
      continue;
    }
    if (!endpoint_->Step()) may_work_ = false;
    lock.unlock();
    while (accesses_ > 0) std::this_thread::yield();
    lock.lock();
  }
}

void ProxiedFunction::Deliver(uint32_t vectors, std::unique_lock<std::mutex>& lock) {
  for (uint32_t i = 0; i < kRingVectors; ++i) {
    if ((vectors >> i & 1) == 0 || !is_present_ || !bit(kMsixControl, kMsixOn)) continue;
    if (bit(kMsixControl, kMaskAll) || vectors_[i].masked()) {
      pending_ |= 1u << i;
      continue;
    }
    if (!bit(kCommand, kMasterOn)) continue;
    const InterruptMessage message{vectors_[i].words[0], vectors_[i].words[2]};
    lock.unlock();
    iommu_.ReadRegisters();
    if (const auto remapped = iommu_.Remap(kRequester, message)) {
      qtest_->Write32(remapped->address, remapped->data);
    } else {
      std::fprintf(stderr, "function: vector %u is blocked by the IOMMU\n", i);
    }
    lock.lock();
    if (i == static_cast<uint32_t>(RingVector::kEvent)) ++events_reported_;
    changed_.notify_all();
  }
}

template <typename Copy>
bool ProxiedFunction::Transfer(uint64_t address, uint64_t bytes, bool writes, uint64_t* fault,
                               const Copy& copy) {
  for (uint64_t done = 0; done < bytes;) {
    CountEvent();
    *fault = address + done;
    if (!is_present_ || !bit(kCommand, kMasterOn)) return false;
    const std::span<uint8_t> memory = iommu_.Translate(kRequester, address + done, writes);
    if (memory.empty()) return false;
    const uint64_t count = std::min<uint64_t>(memory.size(), bytes - done);
    copy(memory.data(), done, count);
    done += count;
  }
  return true;
}

bool ProxiedFunction::ReadMemory(uint64_t address, std::span<uint8_t> destination,
                                 uint64_t* fault) {
  return Transfer(address, destination.size(), false, fault,
                  [&](const uint8_t* memory, uint64_t at, uint64_t count) {
                    std::memcpy(&destination[at], memory, count);
                  });
}

bool ProxiedFunction::WriteMemory(uint64_t address, std::span<const uint8_t> source,
                                  uint64_t* fault) {
  const bool astray = std::exchange(goes_astray_, false);
  if (astray) address ^= kAstray;
  const bool passed = Transfer(address, source.size(), true, fault,
                               [&](uint8_t* memory, uint64_t at, uint64_t count) {
                                 std::memcpy(memory, &source[at], count);
                               });
  if (astray) {
    stray_ = {.address = address, .passed = passed};
    has_strayed_ = true;
    std::fprintf(stderr, "function: a write of %zu bytes goes astray to %" PRIX64 ": %s\n",
                 source.size(), address, passed ? "passed" : "blocked by the IOMMU");
    changed_.notify_all();
  }
  return passed;
}

void ProxiedFunction::RaiseInterrupt(uint32_t vector) {
  CountEvent();
  if (is_present_ && vector < kRingVectors) raised_ |= 1u << vector;
}

}  // namespace atollrt
