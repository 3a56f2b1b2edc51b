// SPDX-License-Identifier: Apache-2.0
#include "driver/vfio/system_calls.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace atollrt {
namespace {

template <typename Number>
Number OrError(Number result) {
  return result < 0 ? -errno : result;
}

}  // namespace

int SystemCalls::Open(const char* path) { return OrError(open(path, O_RDWR | O_CLOEXEC)); }

void SystemCalls::Close(int fd) { close(fd); }

int SystemCalls::Ioctl(int fd, unsigned long request, void* argument) {
  for (;;) {
    const int result = OrError(ioctl(fd, request, argument));
    if (result != -EINTR) return result;
  }
}

ssize_t SystemCalls::Read(int fd, void* data, size_t bytes, uint64_t offset) {
  return OrError(pread(fd, data, bytes, static_cast<off_t>(offset)));
}

ssize_t SystemCalls::Write(int fd, const void* data, size_t bytes, uint64_t offset) {
  return OrError(pwrite(fd, data, bytes, static_cast<off_t>(offset)));
}

void* SystemCalls::MapFile(int fd, uint64_t offset, size_t bytes, bool readable, bool writable) {
  const int protection = (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0);
  void* memory = mmap(nullptr, bytes, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  return memory == MAP_FAILED ? nullptr : memory;
}

int SystemCalls::PopulateForWriting(uint64_t host, uint64_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers do not have
  return OrError(madvise(reinterpret_cast<void*>(host), bytes, kPopulateWrite));
}

size_t SystemCalls::page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace atollrt
