// SPDX-License-Identifier: Apache-2.0
//
// VfioFunction: an opened device of vfio-pci. Registers are loads and stores where the system lets
// them be mapped, and calls elsewhere; interrupts are eventfds; memory goes through the IOMMU.
//
// The system may want the function back (its driver is unbound, the slot is switched off), and
// waits until it is closed: a thread of the function's own hears of it, gives the function back at
// once, whoever uses it, and all calls give kDeviceLost from then on.
//
// The end, then or at destruction, comes in this order: bus mastering off (or a reset, if that
// cannot be switched), interrupts off, all memory out of the IOMMU, the device closed, the IOMMU.
#pragma once

#include <linux/vfio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "atoll/status.h"
#include "driver/pcie/pcie_function.h"
#include "driver/vfio/iommu_space.h"
#include "driver/vfio/system_calls.h"

namespace atollrt {

class VfioFunction final : public PcieFunction {
 public:
  // What Open has got from the system, and everything that has to stay as long as the function.
  struct Opened {
    SystemCalls* calls = nullptr;
    int device = -1;                    // closed by the function
    std::shared_ptr<IommuSpace> space;  // that the device is in
    std::shared_ptr<void> tenancy;      // let go when the device is closed, before the space
    std::string address;                // for messages: "0000:01:00.0"
  };
  // Switches memory access and bus mastering on.
  static Result<std::unique_ptr<PcieFunction>> Create(Opened opened);
  ~VfioFunction() override;

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override;
  Result<uint64_t> Read64(uint32_t bar, uint64_t offset) override;
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override;
  Status Write64(uint32_t bar, uint64_t offset, uint64_t value) override;
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory,
                                          DmaDirection direction) override;
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size_bytes,
                                               DmaDirection direction) override;
  Status EnableInterrupts(uint32_t count) override;
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override;
  void Cancel() override;
  // The kernel takes as long for it as it takes: a tenth of a second. Memory access and bus
  // mastering are on afterwards.
  Status Reset(Deadline deadline) override;
  bool is_present() override;

 private:
  static constexpr uint32_t kVectorsMax = 64;
  static constexpr uint32_t kBars = 6;

  // A part of a BAR that is mapped.
  struct Window {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint8_t* memory = nullptr;
  };
  struct Region {
    uint64_t bytes = 0;
    uint64_t position = 0;  // in the device's file
    std::vector<Window> windows;
  };
  class EventFd;
  class Mapping;
  // What is mapped, shared with the mappings: they may outlive the function's hold on the device.
  struct MappedMemory;

  explicit VfioFunction(Opened opened);
  Status Prepare();
  Status ReadRegion(uint32_t index, Region* region, bool map);
  void MapWindow(Region* region, uint64_t offset, uint64_t bytes);
  void WatchForEnd();
  // One eventfd, for VFIO's notices: false if there is no such notice.
  bool Connect(uint32_t index, const EventFd& event);
  void Watch();
  // The order above. With fd_mutex_ held.
  void TakeDmaAway();
  void Close();

  Result<uint8_t*> Find(uint32_t bar, uint64_t offset, size_t width);
  template <typename Word>
  Result<Word> Read(uint32_t bar, uint64_t offset);
  template <typename Word>
  Status Write(uint32_t bar, uint64_t offset, Word value);

  // A word of the configuration space, with fd_mutex_ held in whichever way.
  template <typename Word>
  bool ReadConfig(uint64_t offset, Word* value);
  template <typename Word>
  bool WriteConfig(uint64_t offset, Word value);
  bool Answers();
  // Sets and clears bits of the command register; false if it does not answer.
  bool SwitchCommand(uint16_t on, uint16_t off);
  int SetIrqs(uint32_t index, std::span<const int> events);
  void DisableInterrupts();

  Status Gone();
  void Lose(const char* reason);

  SystemCalls* const calls_;
  const std::string address_;
  // Guards the device's file: it is closed by who has it exclusively.
  std::shared_mutex fd_mutex_;
  int fd_;
  std::shared_ptr<IommuSpace> space_;
  std::shared_ptr<void> tenancy_;
  bool can_reset_ = false;

  std::array<Region, kBars> bars_;
  Region config_;
  const std::shared_ptr<MappedMemory> mapped_;

  uint32_t vector_index_ = VFIO_PCI_MSIX_IRQ_INDEX;  // or of MSI
  uint32_t vectors_there_ = 0;
  std::vector<std::unique_ptr<EventFd>> events_;  // of vectors; never fewer, so that waits are safe
  std::atomic<uint32_t> vectors_{0};              // connected
  const std::unique_ptr<EventFd> wake_;           // a wait ends: cancelled or lost
  std::atomic<bool> cancelled_{false};

  std::atomic<bool> lost_{false};
  std::mutex loss_mutex_;
  std::string loss_;  // why

  const std::unique_ptr<EventFd> asked_back_, failed_, stop_watching_;
  std::thread watcher_;
};

}  // namespace atollrt
