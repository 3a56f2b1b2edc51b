// SPDX-License-Identifier: Apache-2.0
//
// Buffer: one block of host memory whose size came from input, aligned for vector loads.
// Allocation can fail and says so. Not thread-safe; move-only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "atoll/status.h"

namespace atollrt {

class Buffer {
 public:
  static constexpr size_t kAlignment = 64;  // one cache line, one zmm register

  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
        memfd_(std::exchange(other.memfd_, -1)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(memfd_, other.memfd_);
    return *this;
  }
  ~Buffer();

  // `size_bytes` zeroed bytes aligned to kAlignment, or kResourceExhausted. 0 is allowed. Large
  // blocks take no memory before they are written.
  static Result<Buffer> Allocate(size_t size_bytes);
  // The same in memory that other processes can map: a memfd of its own, sealed against changes of
  // its size.
  static Result<Buffer> AllocateShared(size_t size_bytes);

  // All of a memfd of somebody else's, who may close `file` then; seals it against changes of its
  // size, so that nothing that others do with it makes reading it a fault. kInvalidArgument if that
  // cannot be.
  static Result<Buffer> MapShared(int file);

  // Zeroes the bytes from `offset` on, as if nobody had written them: of large blocks, they take no
  // memory again.
  void Forget(size_t offset);

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  int memfd() const { return memfd_; }  // -1: of none
  std::span<uint8_t> bytes() { return {data_, size_}; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

  // Large blocks come from the kernel and not from malloc: whoever counts what is allocated, as
  // tests do, learns here what they take (bytes > 0) and give back (bytes < 0).
  static inline std::atomic<void (*)(int64_t bytes)> mapping_listener = nullptr;

 private:
  bool MapFile();

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_bytes_ = 0;  // 0: from the heap
  int memfd_ = -1;
};

}  // namespace atollrt
