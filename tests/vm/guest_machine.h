// SPDX-License-Identifier: Apache-2.0
//
// What a PCI function outside of QEMU needs of the machine that it is plugged into: the guest's
// memory, and its VT-d IOMMU, through which all that the function does there goes. QEMU's own IOMMU
// never sees these accesses, so the tables that the guest's kernel wrote are walked here (Intel
// Virtualization Technology for Directed I/O, legacy mode: sections 3.4, 3.6, 5.1).
//
// Nothing is cached: what the guest has unmapped faults from then on. No fault is recorded in the
// IOMMU's registers, which belong to QEMU.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file_descriptor.h"

namespace atollrt {

// The guest's physical memory: one file of QEMU's, mapped once. Thread-safe.
class GuestMemory {
 public:
  struct Region {
    uint64_t guest_address = 0;
    uint64_t bytes = 0;
    uint64_t file_offset = 0;
  };

  // The regions and, for each, the file that it is in. Those of other files (flash) are no memory.
  void Replace(std::span<const Region> regions, std::span<const FileDescriptor> files);

  // Where `bytes` bytes at a guest-physical address are; nullptr if that is no memory. Valid for
  // good.
  uint8_t* At(uint64_t guest_address, uint64_t bytes) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Region> regions_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  uint8_t* mapped_ = nullptr;
  uint64_t mapped_bytes_ = 0;
};

// QEMU's qtest protocol: accesses to the guest's physical address space. Not to be used while
// QEMU's main loop waits for us, as when the function is plugged in or reset. When QEMU ends, reads
// give 0. Thread-safe.
class Qtest {
 public:
  explicit Qtest(FileDescriptor socket) : socket_(std::move(socket)) {}
  uint64_t Read32(uint64_t address);
  uint64_t Read64(uint64_t address);
  void Write32(uint64_t address, uint32_t value);

 private:
  uint64_t Ask(const std::string& line);

  std::mutex mutex_;
  FileDescriptor socket_;
};

// What a function writes to interrupt.
struct InterruptMessage {
  uint32_t address = 0;
  uint32_t data = 0;
};

class Iommu {
 public:
  Iommu(const GuestMemory* memory, Qtest* qtest) : memory_(memory), qtest_(qtest) {}

  // Reads where the tables are. Linux says it once, while it boots; so now and then is enough.
  void ReadRegisters();

  // Memory behind a bus address, for a function with the given requester id (bus << 8 | device << 3
  // | function), up to the end of its page; empty: a fault.
  std::span<uint8_t> Translate(uint16_t requester, uint64_t address, bool writes) const;
  // What becomes of an interrupt; none: it is blocked.
  std::optional<InterruptMessage> Remap(uint16_t requester, const InterruptMessage& message) const;

 private:
  const uint64_t* Entry(uint64_t table, uint64_t index, size_t words) const;

  const GuestMemory* const memory_;
  Qtest* const qtest_;
  mutable std::mutex mutex_;
  bool translates_ = false;
  bool remaps_ = false;
  uint64_t root_table_ = 0;
  uint64_t interrupt_table_ = 0;
};

}  // namespace atollrt
