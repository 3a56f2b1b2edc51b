// SPDX-License-Identifier: Apache-2.0
//
// PageMemory: zeroed host memory from the first byte of a page on, as PcieFunction::Allocate gives.
// Not thread-safe; move-only.
#pragma once

#include <cstdint>
#include <span>

#include "atoll/status.h"
#include "driver/pcie/pcie_function.h"
#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"

namespace atollrt {

class PageMemory {
 public:
  PageMemory() = default;
  // kResourceExhausted if there is not so much.
  static Result<PageMemory> Allocate(uint64_t size_bytes) {
    PageMemory memory;
    ATOLL_ASSIGN_OR_RETURN(memory.buffer_,
                           Buffer::Allocate(SaturatingSum(size_bytes, kDmaPageBytes)));
    const uint64_t padding =
        -reinterpret_cast<uintptr_t>(memory.buffer_.data()) & (kDmaPageBytes - 1);
    memory.bytes_ = memory.buffer_.bytes().subspan(padding, size_bytes);
    return memory;
  }

  std::span<uint8_t> bytes() const { return bytes_; }  // none of one that was not allocated

 private:
  Buffer buffer_;
  std::span<uint8_t> bytes_;
};

}  // namespace atollrt
