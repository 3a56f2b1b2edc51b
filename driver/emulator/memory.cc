// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/memory.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint8_t kUndefinedByte = 0xA5;  // in program memory, no opcode
constexpr size_t kUndefinedBytes = size_t{64} << 20;
constexpr size_t kBlockBytes = size_t{64} << 10;

}  // namespace

Result<OnChipMemory> OnChipMemory::Allocate(uint64_t size_bytes) {
  OnChipMemory memory;
  ATOLL_ASSIGN_OR_RETURN(memory.bytes_, Buffer::Allocate(size_bytes));
  memory.page_changed_.resize(size_bytes / kPageBytes + 1);
  memory.Undefine();
  return memory;
}

void OnChipMemory::Undefine() {
  bytes_.Forget(0);
  block_filled_.assign(DivideRoundingUp(std::min(size(), kUndefinedBytes), kBlockBytes), false);
  std::fill(page_changed_.begin(), page_changed_.end(), ++now_);
}

const uint8_t* OnChipMemory::ReadAt(uint64_t address, uint64_t size_bytes) {
  ATOLL_CHECK(Contains(address, size_bytes));
  const size_t end =
      std::min<size_t>(DivideRoundingUp(address + size_bytes, kBlockBytes), block_filled_.size());
  for (size_t block = address / kBlockBytes; block < end; ++block) {
    if (block_filled_[block]) continue;
    block_filled_[block] = true;
    std::memset(bytes_.data() + block * kBlockBytes, kUndefinedByte,
                std::min(kBlockBytes, bytes_.size() - block * kBlockBytes));
  }
  return bytes_.data() + address;
}

uint8_t* OnChipMemory::WriteAt(uint64_t address, uint64_t size_bytes) {
  ReadAt(address, size_bytes);
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
