// SPDX-License-Identifier: Apache-2.0
//
// PcieFunction: the seam downward for devices on PCIe, as UsbTransport is for those on USB. One
// opened PCI function: its registers, host memory that it reaches by DMA, its interrupts, its
// reset. Behind it are the emulated device, Linux's VFIO, recordings and faults; the driver cannot
// tell which.
//
// Order: a register write is seen by the device after all stores to memory that came before it in
// the program; what the device wrote before it raised an interrupt is in memory when
// AwaitInterrupts reports that.
//
// Registers, Map and Allocate may be called by any thread, and overlap; AwaitInterrupts by one
// thread at a time. Cancel makes pending and later AwaitInterrupts return kCancelled until Reset.
//
// Errors of all calls: kDeviceLost if the function is gone, or the system wants it back. A function
// that has left the bus gives ones for every register: a read that gives nothing else may be the
// first to notice, and is_present() tells.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "atoll/status.h"
#include "runtime/base/clock.h"

namespace atollrt {

enum class DmaDirection : uint8_t { kToDevice, kFromDevice, kBoth };

inline constexpr uint64_t kDmaPageBytes = 4096;

// Host memory that the function may reach, at the bus address iova(), until destruction. Whoever
// destroys one has made sure that the device does not use it any more. Must not outlive the
// function.
class DmaMapping {
 public:
  virtual ~DmaMapping() = default;
  DmaMapping(const DmaMapping&) = delete;
  DmaMapping& operator=(const DmaMapping&) = delete;

  std::span<uint8_t> bytes() const { return bytes_; }
  uint64_t iova() const { return iova_; }  // of the first byte

 protected:
  DmaMapping(std::span<uint8_t> bytes, uint64_t iova) : bytes_(bytes), iova_(iova) {}

 private:
  const std::span<uint8_t> bytes_;
  const uint64_t iova_;
};

class PcieFunction {
 public:
  // Takes the device's right to do DMA, then everything that was mapped.
  virtual ~PcieFunction() = default;

  // Registers of base address register `bar`, 0 to 5. `offset` is a multiple of the width.
  // kInvalidArgument, with the numbers, outside of the BAR.
  virtual Result<uint32_t> Read32(uint32_t bar, uint64_t offset) = 0;
  virtual Result<uint64_t> Read64(uint32_t bar, uint64_t offset) = 0;
  virtual Status Write32(uint32_t bar, uint64_t offset, uint32_t value) = 0;
  virtual Status Write64(uint32_t bar, uint64_t offset, uint64_t value) = 0;

  // Whether Map takes the memory of others. If not, it gives kUnsupported, and everything that the
  // device is to reach has to be copied to memory of Allocate: a recording must not depend on where
  // a program has its buffers.
  virtual bool maps_callers_memory() const { return true; }
  // Memory of the caller's that stays where it is as long as the mapping lives. Whole pages are
  // pinned, so neighbours on the same page are reachable, too; iova() keeps the offset in the page.
  // kResourceExhausted or kPermissionDenied, with what to do about it, if the system allows no more
  // pinned memory; kInvalidArgument for no bytes at all.
  virtual Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory,
                                                  DmaDirection direction) = 0;
  // Zeroed memory from the first byte of a page on, which goes with the mapping. Errors as Map.
  virtual Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size_bytes,
                                                       DmaDirection direction) = 0;

  // Connects vectors 0 to `count` - 1, 64 at most, of MSI-X, or of MSI if the device has no MSI-X;
  // 0 disconnects. What was raised before is forgotten. kUnsupported if the device has fewer, or
  // the system refuses them.
  virtual Status EnableInterrupts(uint32_t count) = 0;
  // Waits until one of `vectors`, a bit for each, has been raised since it was last reported; which
  // of them have. Several may have become one, and some may have no cause. kTimeout past the
  // deadline; one that has passed already takes what is there.
  virtual Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) = 0;

  // Ends a wait in progress with kCancelled. Safe from any thread, at any time.
  virtual void Cancel() = 0;

  // The device returns to its power-on state and does no DMA; mappings stay, interrupts have to be
  // connected again. kUnsupported if it knows no reset of its own.
  virtual Status Reset(Deadline deadline) = 0;

  // Whether the function still answers in its configuration space.
  virtual bool is_present() = 0;
};

}  // namespace atollrt
