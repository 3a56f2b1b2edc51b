// SPDX-License-Identifier: Apache-2.0
//
// The calls by which VFIO is driven, so that a test can stand in for the kernel. Numbers of files
// are those of the process; errors are negative errno values. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace atollrt {

class SystemCalls {
 public:
  virtual ~SystemCalls() = default;

  virtual int Open(const char* path);  // for reading and writing
  virtual void Close(int fd);
  // `argument` points to what the request takes.
  virtual int Ioctl(int fd, unsigned long request, void* argument);
  virtual ssize_t Read(int fd, void* data, size_t bytes, uint64_t offset);
  virtual ssize_t Write(int fd, const void* data, size_t bytes, uint64_t offset);
  // Shared, for loads and stores as `readable` and `writable` say; nullptr if that is refused.
  // Memory so mapped is given back by munmap.
  virtual void* MapFile(int fd, uint64_t offset, size_t bytes, bool readable, bool writable);
  // Makes each of the whole pages in [host, host + bytes) a page that the process has for itself to
  // write to, as a write would; the bytes stay. -EINVAL where they may not be written, and of Linux
  // before 5.14.
  virtual int PopulateForWriting(uint64_t host, uint64_t bytes);
  virtual size_t page_bytes();
};

}  // namespace atollrt
