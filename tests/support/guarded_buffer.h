// SPDX-License-Identifier: Apache-2.0
//
// GuardedBuffer: `size` bytes that end, or begin, directly at a page that may not be touched, so
// that a kernel which reads or writes one byte too far crashes at that instruction. The other side
// is checked too: up to a page of filler bytes lies there, and Intact() tells whether they still
// have their value. Which side the guard page is on, and hence the alignment of the data, is the
// test's choice:
//
//   GuardedBuffer at_end(size);                       // data()[size] faults
//   GuardedBuffer at_end(size, GuardedBuffer::kEnd, 3);  // as before, 3 checked bytes in between
//   GuardedBuffer at_start(size, GuardedBuffer::kStart); // data()[-1] faults
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "atoll/check.h"

namespace atollrt {

class GuardedBuffer {
 public:
  enum Side { kEnd, kStart };

  // `gap` bytes (< page size) lie between the data and the guard page; they can be read, and
  // Intact() watches over them.
  explicit GuardedBuffer(size_t size, Side side = kEnd, size_t gap = 0) : size_(size) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    body_bytes_ = (size + gap + page - 1) / page * page + page;
    mapped_bytes_ = body_bytes_ + page;
    void* mapped =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ATOLL_CHECK(mapped != MAP_FAILED);
    mapping_ = static_cast<uint8_t*>(mapped);
    body_ = side == kEnd ? mapping_ : mapping_ + page;
    uint8_t* guard = side == kEnd ? mapping_ + body_bytes_ : mapping_;
    ATOLL_CHECK(mprotect(guard, page, PROT_NONE) == 0);
    std::memset(body_, kFiller, body_bytes_);
    data_ = side == kEnd ? body_ + body_bytes_ - gap - size : body_ + gap;
  }
  ~GuardedBuffer() { munmap(mapping_, mapped_bytes_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  uint8_t* data() { return data_; }
  size_t size() const { return size_; }
  std::span<uint8_t> bytes() { return {data_, size_}; }

  // Whether all bytes around the data are as they were.
  bool Intact() const {
    for (const uint8_t* byte = body_; byte < body_ + body_bytes_; ++byte) {
      if (byte == data_) byte += size_;
      if (byte < body_ + body_bytes_ && *byte != kFiller) return false;
    }
    return true;
  }

 private:
  static constexpr uint8_t kFiller = 0xA5;
  size_t size_;
  size_t body_bytes_ = 0;
  size_t mapped_bytes_ = 0;
  uint8_t* mapping_ = nullptr;
  uint8_t* body_ = nullptr;  // all bytes that may be touched
  uint8_t* data_ = nullptr;
};

}  // namespace atollrt
