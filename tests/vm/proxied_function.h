// SPDX-License-Identifier: Apache-2.0
//
// ProxiedFunction: an Atoll-1 as the PCI function that a guest sees: the emulated endpoint and all
// that belongs to who plugs it in, namely configuration space, the MSI-X table with its masks, and
// the way through the guest's IOMMU. It can leave the bus, and do what a broken device does.
//
// A thread of its own lets the endpoint work. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "atoll/status.h"
#include "driver/emulator/pcie_endpoint.h"
#include "runtime/base/clock.h"
#include "tests/vm/guest_machine.h"

namespace atollrt {

class ProxiedFunction final : private PcieUpstream {
 public:
  // Behind the root port that gets bus 1.
  static constexpr uint16_t kRequester = 1 << 8;

  static Result<std::unique_ptr<ProxiedFunction>> Create(const CoreOptions& options,
                                                         const GuestMemory* memory, Qtest* qtest);
  ~ProxiedFunction();

  // Accesses of `bytes` bytes, 1 to 4, to configuration space, and of 4 or 8 to what base address
  // registers decode, at an address of the bus. What nobody answers gives ones.
  uint32_t ReadConfiguration(uint32_t offset, uint32_t bytes);
  void WriteConfiguration(uint32_t offset, uint32_t bytes, uint32_t value);
  uint64_t ReadMemoryAt(uint64_t address, uint32_t bytes);
  void WriteMemoryAt(uint64_t address, uint32_t bytes, uint64_t value);

  // Power-on state.
  void Reset();

  // The function leaves the bus: ones are all that it gives, it takes nothing, does no DMA and
  // raises no interrupt. After `events` accesses, transfers by DMA of up to a page, and interrupts;
  // so it may be in the middle of anything. 0: now.
  void LeaveAfter(uint64_t events);
  // Waits for that; false past the deadline.
  bool AwaitAbsence(Deadline deadline);
  // It is there again, without power in the meantime or (`keeps_configuration`) as after a link
  // that was down: what the system wrote to configuration space then still holds.
  enum class Return { kFromPowerOff, kFromLinkDown };
  void ComeBack(Return how);
  // Waits until the next event of a program is reported by interrupt; false past the deadline.
  bool AwaitEvent(Deadline deadline);

  // Its next write by DMA goes astray, to an address that nobody gave it.
  void GoAstray();
  // Where that was, once it has happened, and whether the IOMMU let it pass.
  struct Stray {
    uint64_t address = 0;
    bool passed = false;
  };
  bool AwaitStray(Deadline deadline, Stray* stray);

 private:
  struct Vector {
    std::array<uint32_t, 4> words{0, 0, 0, 1};  // address, its upper half, data, control
    bool masked() const { return (words[3] & 1) != 0; }
  };

  ProxiedFunction(const GuestMemory* memory, Qtest* qtest) : qtest_(qtest), iommu_(memory, qtest) {}

  // Of the thread.
  void Work();
  void Deliver(uint32_t vectors, std::unique_lock<std::mutex>& lock);

  // PcieUpstream, from within the endpoint's Step and so with the mutex.
  bool ReadMemory(uint64_t address, std::span<uint8_t> destination, uint64_t* fault) override;
  bool WriteMemory(uint64_t address, std::span<const uint8_t> source, uint64_t* fault) override;
  void RaiseInterrupt(uint32_t vector) override;
  // Calls `copy` with each piece of guest memory behind the bus addresses, and how far it is.
  template <typename Copy>
  bool Transfer(uint64_t address, uint64_t bytes, bool writes, uint64_t* fault, const Copy& copy);

  // With the mutex.
  void PowerOn();
  void ResetFunction();
  void CountEvent();
  void Leave();
  bool bit(uint32_t offset, uint32_t bit) const;
  uint32_t word(uint32_t offset) const;
  void set(uint32_t offset, uint32_t bytes, uint32_t value);
  void set_writable(uint32_t offset, uint32_t bytes, uint32_t mask);
  // The base address register that decodes `address`, and the offset from it; none: -1.
  int Decode(uint64_t address, uint64_t* offset) const;
  uint32_t ReadRegister(int bar, uint64_t offset);
  void WriteRegister(int bar, uint64_t offset, uint32_t value);
  uint32_t* TableWord(uint64_t offset);

  // An access from the bus, which goes before the endpoint's next step.
  class Access;

  Qtest* const qtest_;
  Iommu iommu_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> accesses_{0};  // that wait for the mutex
  // All below are guarded by mutex_.
  std::unique_ptr<PcieEndpoint> endpoint_;
  std::array<uint8_t, 256> configuration_{};
  std::array<uint8_t, 256> writable_{};
  std::array<Vector, kRingVectors> vectors_;
  uint32_t raised_ = 0;   // vectors that are to be delivered
  uint32_t pending_ = 0;  // vectors that were raised while masked
  bool may_work_ = false;
  bool iommu_changes_ = true;
  bool is_present_ = true;
  uint64_t leaves_after_ = 0;  // events; 0: stays
  uint64_t events_reported_ = 0;
  bool goes_astray_ = false;
  bool has_strayed_ = false;
  Stray stray_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace atollrt
