// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/memory.h"

#include <algorithm>
#include <cstring>

namespace atollrt {
namespace {

constexpr uint8_t kUndefinedByte = 0xA5;  // in program memory, no opcode
constexpr size_t kUndefinedBytes = size_t{64} << 20;

}  // namespace

void Undefine(Buffer* memory) {
  const size_t filled = std::min(memory->size(), kUndefinedBytes);
  std::memset(memory->data(), kUndefinedByte, filled);
  memory->Forget(filled);
}

void OnChipMemory::Undefine() {
  WriteAt(0, size());
  atollrt::Undefine(&bytes_);
}

Result<OnChipMemory> OnChipMemory::Allocate(uint64_t size_bytes) {
  OnChipMemory memory;
  ATOLL_ASSIGN_OR_RETURN(memory.bytes_, Buffer::Allocate(size_bytes));
  memory.page_changed_.resize(size_bytes / kPageBytes + 1);
  return memory;
}

uint8_t* OnChipMemory::WriteAt(uint64_t address, uint64_t size_bytes) {
  ATOLL_CHECK(Contains(address, size_bytes));
  ++now_;
  if (size_bytes > 0) {
    const auto pages = page_changed_.begin();
    std::fill(pages + address / kPageBytes, pages + (address + size_bytes - 1) / kPageBytes + 1,
              now_);
  }
  return bytes_.data() + address;
}

bool OnChipMemory::ChangedSince(uint64_t time, uint64_t address, uint64_t size_bytes) const {
  ATOLL_CHECK(Contains(address, size_bytes));
  if (size_bytes == 0) return false;
  const auto pages = page_changed_.begin();
  return std::any_of(pages + address / kPageBytes,
                     pages + (address + size_bytes - 1) / kPageBytes + 1,
                     [time](uint64_t changed) { return changed > time; });
}

}  // namespace atollrt
