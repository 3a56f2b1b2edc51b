// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/guest_machine.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "atoll/check.h"

namespace atollrt {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPageMask = ~(kPageBytes - 1);
constexpr uint64_t kAddressMask = 0x000F'FFFF'FFFF'F000;

// Registers of the IOMMU, where Linux finds it on this machine (VT-d, section 11.4).
constexpr uint64_t kVtd = 0xFED9'0000;
constexpr uint64_t kGlobalStatus = kVtd + 0x1C;
constexpr uint64_t kRootTableAddress = kVtd + 0x20;
constexpr uint64_t kInterruptTableAddress = kVtd + 0xB8;
constexpr uint64_t kTranslationOn = uint64_t{1} << 31;
constexpr uint64_t kRemappingOn = uint64_t{1} << 25;

uint64_t Bits(uint64_t value, int low, int count) {
  return (value >> low) & ((uint64_t{1} << count) - 1);
}

}  // namespace

void GuestMemory::Replace(std::span<const Region> regions, std::span<const FileDescriptor> files) {
  const std::lock_guard lock(mutex_);
  regions_.clear();
  for (size_t i = 0; i < regions.size(); ++i) {
    struct stat file = {};
    ATOLL_CHECK(fstat(files[i].get(), &file) == 0);
    if (mapped_ == nullptr) {
      device_ = file.st_dev;
      inode_ = file.st_ino;
      mapped_bytes_ = static_cast<uint64_t>(file.st_size);
      void* memory =
          mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, files[i].get(), 0);
      ATOLL_CHECK(memory != MAP_FAILED);
      mapped_ = static_cast<uint8_t*>(memory);
    }
    const bool is_memory = file.st_dev == device_ && file.st_ino == inode_ &&
                           regions[i].file_offset <= mapped_bytes_ &&
                           regions[i].bytes <= mapped_bytes_ - regions[i].file_offset;
    if (is_memory) regions_.push_back(regions[i]);
  }
}

uint8_t* GuestMemory::At(uint64_t guest_address, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  for (const Region& region : regions_) {
    if (guest_address < region.guest_address) continue;
    const uint64_t offset = guest_address - region.guest_address;
    if (offset <= region.bytes && bytes <= region.bytes - offset) {
      return mapped_ + region.file_offset + offset;
    }
  }
  return nullptr;
}

uint64_t Qtest::Read32(uint64_t address) {
  char line[64];
  std::snprintf(line, sizeof line, "readl 0x%" PRIx64 "\n", address);
  return Ask(line);
}
uint64_t Qtest::Read64(uint64_t address) {
  char line[64];
  std::snprintf(line, sizeof line, "readq 0x%" PRIx64 "\n", address);
  return Ask(line);
}
void Qtest::Write32(uint64_t address, uint32_t value) {
  char line[64];
  std::snprintf(line, sizeof line, "writel 0x%" PRIx64 " 0x%x\n", address, value);
  Ask(line);
}

uint64_t Qtest::Ask(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (write(socket_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 0;
  std::string reply;
  while (reply.empty() || reply.back() != '\n') {
    char part[128];
    const ssize_t count = read(socket_.get(), part, sizeof part);
    if (count <= 0) return 0;
    reply.append(part, static_cast<size_t>(count));
  }
  ATOLL_CHECK(reply.compare(0, 2, "OK") == 0);
  return reply[2] == ' ' ? std::strtoull(reply.c_str() + 3, nullptr, 0) : 0;
}

void Iommu::ReadRegisters() {
  const uint64_t status = qtest_->Read32(kGlobalStatus);
  const uint64_t root_table = qtest_->Read64(kRootTableAddress);
  const uint64_t interrupt_table = qtest_->Read64(kInterruptTableAddress);
  const std::lock_guard lock(mutex_);
  translates_ = (status & kTranslationOn) != 0;
  remaps_ = (status & kRemappingOn) != 0;
  root_table_ = root_table;
  interrupt_table_ = interrupt_table;
}

// An entry of `words` 64-bit words of a table; nullptr outside of memory.
const uint64_t* Iommu::Entry(uint64_t table, uint64_t index, size_t words) const {
  const uint64_t bytes = words * sizeof(uint64_t);
  return reinterpret_cast<const uint64_t*>(
      memory_->At((table & kAddressMask) + index * bytes, bytes));
}

std::span<uint8_t> Iommu::Translate(uint16_t requester, uint64_t address, bool writes) const {
  const std::lock_guard lock(mutex_);
  const uint64_t rest_of_page = kPageBytes - (address & ~kPageMask);
  const auto memory_at = [&](uint64_t guest_address) -> std::span<uint8_t> {
    uint8_t* memory = memory_->At(guest_address, rest_of_page);
    if (memory == nullptr) return {};
    return {memory, rest_of_page};
  };
  if (!translates_) return memory_at(address);
  const uint64_t* root = Entry(root_table_, requester >> 8, 2);
  if (root == nullptr || (root[0] & 1) == 0) return {};
  const uint64_t* context = Entry(root[0], requester & 0xFF, 2);
  if (context == nullptr || (context[0] & 1) == 0) return {};
  constexpr uint64_t kPassThrough = 2;
  if (Bits(context[0], 2, 2) == kPassThrough) return memory_at(address);
  const int levels = static_cast<int>(Bits(context[1], 0, 3)) + 2;
  if (levels > 5 || address >> (12 + 9 * levels) != 0) return {};
  uint64_t table = context[0];
  for (int level = levels; level > 0; --level) {
    const int shift = 12 + 9 * (level - 1);
    const uint64_t* entry = Entry(table, Bits(address, shift, 9), 1);
    if (entry == nullptr) return {};
    // The guest's processor may be changing it.
    const uint64_t value = __atomic_load_n(entry, __ATOMIC_ACQUIRE);
    if (Bits(value, writes ? 1 : 0, 1) == 0) return {};
    constexpr uint64_t kIsPage = 1 << 7;
    if (level == 1 || (value & kIsPage) != 0) {
      const uint64_t within = (uint64_t{1} << shift) - 1;
      return memory_at((value & kAddressMask & ~within) | (address & within));
    }
    table = value;
  }
  return {};
}

std::optional<InterruptMessage> Iommu::Remap(uint16_t requester,
                                             const InterruptMessage& message) const {
  const std::lock_guard lock(mutex_);
  if (!remaps_) return message;
  // VT-d, sections 5.1.2 (the request), 9.10 (the entry); x2APIC or not: 11.4.4.
  constexpr uint32_t kRemappable = 1 << 4, kHasSubhandle = 1 << 3;
  if ((message.address & kRemappable) == 0) return std::nullopt;
  uint64_t index = Bits(message.address, 5, 15) | Bits(message.address, 2, 1) << 15;
  if ((message.address & kHasSubhandle) != 0) index += message.data & 0xFFFF;
  const uint64_t* entry = Entry(interrupt_table_, index, 2);
  if (entry == nullptr || (entry[0] & 1) == 0) return std::nullopt;
  const bool is_for_one_requester = Bits(entry[1], 18, 2) == 1;
  if (is_for_one_requester && Bits(entry[1], 0, 16) != requester) return std::nullopt;
  const bool x2apic = Bits(interrupt_table_, 11, 1) != 0;
  const uint64_t target = x2apic ? Bits(entry[0], 32, 32) : Bits(entry[0], 40, 8);
  return InterruptMessage{
      .address = static_cast<uint32_t>(0xFEE0'0000 | (target & 0xFF) << 12 |
                                       Bits(entry[0], 3, 1) << 3 | Bits(entry[0], 2, 1) << 2),
      .data = static_cast<uint32_t>(Bits(entry[0], 16, 8) | Bits(entry[0], 5, 3) << 8 |
                                    Bits(entry[0], 4, 1) << 15)};
}

}  // namespace atollrt
