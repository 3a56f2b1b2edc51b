// SPDX-License-Identifier: Apache-2.0
//
// Buffers in memory that other processes can map, for devices that brokers have.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/buffer.h"

namespace atollrt {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// All of memfd_, sealed.
bool Buffer::MapFile() {
  (void)fcntl(memfd_, F_ADD_SEALS, kSeals);  // which it may have already
  const int seals = fcntl(memfd_, F_GET_SEALS);
  struct stat status = {};
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(memfd_, &status) != 0) return false;
  const auto size = static_cast<size_t>(status.st_size);
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_, 0);
  if (memory == MAP_FAILED) return false;
  data_ = static_cast<uint8_t*>(memory);
  size_ = mapped_bytes_ = size;
  if (auto* const listener = mapping_listener.load(); listener != nullptr) {
    listener(static_cast<int64_t>(size));
  }
  return true;
}

Result<Buffer> Buffer::AllocateShared(size_t size_bytes) {
  Buffer buffer;
  if (size_bytes == 0) return buffer;
  buffer.memfd_ = memfd_create("atoll", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (ftruncate(buffer.memfd_, static_cast<off_t>(size_bytes)) != 0 || !buffer.MapFile()) {
    return ResourceExhausted("out of memory: cannot allocate %zu bytes", size_bytes);
  }
  return buffer;
}

Result<Buffer> Buffer::MapShared(int file) {
  Buffer buffer;
  buffer.memfd_ = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (buffer.MapFile()) return buffer;
  return InvalidArgument(
      "file %d is no memfd that can be sealed (MFD_ALLOW_SEALING), of its final size", file);
}

}  // namespace atollrt
