// SPDX-License-Identifier: Apache-2.0
//
// CoralPcieLink: how a host reaches a Coral on PCIe: registers, host memory behind the chip's own
// page table, interrupts, reset, heat (docs/coral.md). Two ways lead there: a PcieFunction, where
// this driver does all of it (function_link.h), and the node of Google's kernel modules, which do
// the half below (apex_link.h). What the registers mean is in pcie_session.h.
//
// Map and Allocate, and the destruction of what they give, may come from any thread at any time;
// the other calls from one at a time, the holder of the wire.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "atoll/status.h"
#include "driver/coral/registers.h"
#include "driver/pcie/pcie_function.h"
#include "runtime/base/clock.h"

namespace atollrt {

// Host memory at an address of the chip's, until destruction: by then the chip does not use it any
// more. It stays where it is over Start, and must not outlive the link.
class CoralMemory {
 public:
  virtual ~CoralMemory() = default;
  CoralMemory(const CoralMemory&) = delete;
  CoralMemory& operator=(const CoralMemory&) = delete;

  std::span<uint8_t> bytes() const { return bytes_; }
  uint64_t address() const { return address_; }  // of the first byte

  // Before the chip uses it again, after the CPU did; and the other way round. They do something
  // only where devices on PCIe do not look into the caches of CPUs.
  virtual Status GiveToChip() { return {}; }
  virtual Status TakeBack() { return {}; }

 protected:
  CoralMemory(std::span<uint8_t> bytes, uint64_t address) : bytes_(bytes), address_(address) {}

 private:
  const std::span<uint8_t> bytes_;
  const uint64_t address_;
};

// Vectors of MSI-X, a bit for each.
inline constexpr uint32_t kCoralVectors = 13;
inline constexpr uint32_t kCoralQueueVector = 0;
inline constexpr uint32_t kCoralScalarVector = 4;    // of the first of four
inline constexpr uint32_t kCoralTopLevelVector = 8;  // likewise
inline constexpr uint32_t kCoralFatalVector = 12;

class CoralPcieLink {
 public:
  // Puts the chip into reset, as far as it still answers, so that it needs little power.
  virtual ~CoralPcieLink() = default;

  // From whatever state the chip is in: a reset, after which it has its clock, its page table leads
  // to all that is mapped, its interrupts are connected and queue_memory() is zero. kUnsupported if
  // it is another chip, kTimeout if it does not follow, kDeviceLost if it is gone.
  virtual Status Start(Deadline deadline) = 0;
  // For a chip that does not let go of memory when it is asked to: by whatever means there are. No
  // DMA runs afterwards if this succeeds; Start comes before anything else then.
  virtual Status Stop(Deadline deadline) = 0;

  // Registers that every driver uses: 40000 to 48fff.
  virtual Result<uint64_t> Read(coral::Register64 address) = 0;
  virtual Status Write(coral::Register64 address, uint64_t value) = 0;

  // Two pages, both ways, whose contents CPU and chip see alike: for descriptors and for what the
  // chip says of them. Valid from one Start to the next.
  struct QueueMemory {
    std::span<uint8_t> bytes;
    uint64_t address = 0;
  };
  virtual QueueMemory queue_memory() const = 0;

  // Zeroed memory, from the first byte of a page on. kResourceExhausted or kPermissionDenied, with
  // what to do about it.
  virtual Result<std::unique_ptr<CoralMemory>> Allocate(uint64_t bytes, DmaDirection direction) = 0;
  // Memory of somebody else's, which stays where it is. The chip reaches what else is on its pages,
  // too. Likewise, and kUnsupported where everything has to be copied.
  virtual Result<std::unique_ptr<CoralMemory>> Map(std::span<uint8_t> memory,
                                                   DmaDirection direction) = 0;

  // Whether `address`, of the chip's, lies in what Allocate and Map have given.
  virtual bool IsMapped(uint64_t address) = 0;

  // Those of `vectors` that have been raised since they were last reported. kTimeout past the
  // deadline.
  virtual Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) = 0;

  // While the chip works, now and then: slows it down when it is hot, where nobody else does.
  virtual Status WatchTemperature() = 0;
};

}  // namespace atollrt
