// SPDX-License-Identifier: Apache-2.0
#include "camera/sources/byte_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "camera/picture/file_io.h"

namespace atollrt {

Result<std::unique_ptr<ByteStream>> ByteStream::Open(const std::string& path,
                                                     const std::atomic<bool>* stop) {
  const bool is_stdin = path == "-";
  const std::string name = is_stdin ? "standard input" : path;
  // The flags of the standard input are shared with other programs.
  const int fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                          : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return FileError(name, "open", errno);
  struct stat info = {};
  const bool live = fstat(fd, &info) != 0 || !S_ISREG(info.st_mode);
  return std::unique_ptr<ByteStream>(new ByteStream(name, fd, live, stop));
}

ByteStream::~ByteStream() { close(fd_); }

Result<std::span<const uint8_t>> ByteStream::Peek() {
  constexpr int kPollMs = 100;
  constexpr size_t kBufferBytes = size_t{1} << 16;
  while (begin_ == end_) {
    if (stopped()) return std::span<const uint8_t>();
    pollfd ready = {fd_, POLLIN, 0};
    const int count = poll(&ready, 1, kPollMs);
    if (count < 0 && errno != EINTR) return FileError(name_, "wait for", errno);
    if (count <= 0) continue;
    buffer_.resize(kBufferBytes);
    const ssize_t got = read(fd_, buffer_.data(), buffer_.size());
    if (got == 0) return std::span<const uint8_t>();
    if (got < 0 && errno != EINTR && errno != EAGAIN) return FileError(name_, "read", errno);
    begin_ = 0;
    end_ = static_cast<size_t>(got > 0 ? got : 0);
  }
  return std::span<const uint8_t>(buffer_).subspan(begin_, end_ - begin_);
}

bool ByteStream::Rewind() {
  begin_ = end_ = 0;
  return !live_ && lseek(fd_, 0, SEEK_SET) == 0;
}

}  // namespace atollrt
