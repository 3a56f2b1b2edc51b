// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/buffer.h"

#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {

Result<Buffer> Buffer::Allocate(size_t size_bytes) {
  Buffer buffer;
  if (size_bytes == 0) return buffer;
  if (size_bytes > SIZE_MAX - kAlignment) {
    return ResourceExhausted("cannot allocate %zu bytes", size_bytes);
  }
  const size_t rounded = AlignUp(size_bytes, kAlignment);
  buffer.data_ = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, rounded));
  if (buffer.data_ == nullptr) {
    return ResourceExhausted("out of memory: cannot allocate %zu bytes", size_bytes);
  }
  buffer.size_ = size_bytes;
  std::memset(buffer.data_, 0, rounded);
  return buffer;
}

}  // namespace atollrt
