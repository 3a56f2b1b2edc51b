// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// From here on, pages that the kernel clears when they are first written are cheaper than clearing
// all at once.
constexpr size_t kMappedFrom = size_t{1} << 18;

void TellListener(int64_t bytes) {
  if (auto* const listener = Buffer::mapping_listener.load(); listener != nullptr) listener(bytes);
}

}  // namespace

Result<Buffer> Buffer::Allocate(size_t size_bytes) {
  Buffer buffer;
  if (size_bytes == 0) return buffer;
  if (size_bytes > SIZE_MAX - kAlignment) {
    return ResourceExhausted("cannot allocate %zu bytes", size_bytes);
  }
  const size_t rounded = AlignUp(size_bytes, kAlignment);
  if (rounded >= kMappedFrom) {
    void* const memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              /*fd=*/-1, /*offset=*/0);
    if (memory == MAP_FAILED) {
      return ResourceExhausted("out of memory: cannot allocate %zu bytes", size_bytes);
    }
    buffer.data_ = static_cast<uint8_t*>(memory);
    buffer.size_ = size_bytes;
    buffer.mapped_bytes_ = rounded;
    TellListener(static_cast<int64_t>(rounded));
    return buffer;
  }
  buffer.data_ = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, rounded));
  if (buffer.data_ == nullptr) {
    return ResourceExhausted("out of memory: cannot allocate %zu bytes", size_bytes);
  }
  buffer.size_ = size_bytes;
  std::memset(buffer.data_, 0, rounded);
  return buffer;
}

void Buffer::Forget(size_t offset) {
  if (offset >= size_) return;
  if (mapped_bytes_ > 0) {
    // Whole pages are given back, and read as zeros.
    const size_t page = AlignUp(offset, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    const int advice = memfd_ < 0 ? MADV_DONTNEED : MADV_REMOVE;
    if (page < mapped_bytes_ && madvise(data_ + page, mapped_bytes_ - page, advice) == 0) {
      std::memset(data_ + offset, 0, page - offset);
      return;
    }
  }
  std::memset(data_ + offset, 0, size_ - offset);
}

Buffer::~Buffer() {
  if (mapped_bytes_ > 0) {
    munmap(data_, mapped_bytes_);
    TellListener(-static_cast<int64_t>(mapped_bytes_));
  } else {
    std::free(data_);
  }
  if (memfd_ >= 0) close(memfd_);
}

}  // namespace atollrt
