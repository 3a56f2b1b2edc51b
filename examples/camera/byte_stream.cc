// SPDX-License-Identifier: Apache-2.0
#include "examples/camera/byte_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "examples/picture/file_io.h"

namespace atollrt {

Result<std::unique_ptr<ByteStream>> ByteStream::Open(const std::string& path,
                                                     const std::atomic<bool>* stop) {
  const bool is_stdin = path == "-";
  const std::string name = is_stdin ? "standard input" : path;
  const int fd = is_stdin ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(name, "open", errno);
  struct stat info = {};
  const bool live = fstat(fd, &info) != 0 || !S_ISREG(info.st_mode);
  return std::unique_ptr<ByteStream>(new ByteStream(name, fd, live, stop));
}

ByteStream::~ByteStream() { close(fd_); }

Result<bool> ByteStream::Read(size_t size, std::vector<uint8_t>* bytes) {
  constexpr int kSliceMs = 100;
  while (true) {
    if (stop_ != nullptr && stop_->load()) return false;
    pollfd ready = {fd_, POLLIN, 0};
    const int count = poll(&ready, 1, kSliceMs);
    if (count < 0 && errno != EINTR) return FileError(name_, "wait for", errno);
    if (count <= 0) continue;
    const size_t old_size = bytes->size();
    bytes->resize(old_size + size);
    const ssize_t got = read(fd_, bytes->data() + old_size, size);
    const int error = errno;
    bytes->resize(old_size + static_cast<size_t>(got > 0 ? got : 0));
    if (got >= 0) return got > 0;
    if (error != EINTR && error != EAGAIN) return FileError(name_, "read", error);
  }
}

bool ByteStream::Rewind() { return !live_ && lseek(fd_, 0, SEEK_SET) == 0; }

}  // namespace atollrt
