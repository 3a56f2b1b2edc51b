// SPDX-License-Identifier: Apache-2.0
//
// ByteStream: what files, pipes and the standard input have to give, in the pieces in which it
// comes. One thread at a time.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "camera/picture/file_io.h"
#include "runtime/base/file_descriptor.h"

namespace atollrt {

// A file, a pipe or the standard input, read through a buffer of 64 KiB.
class ByteStream {
 public:
  // "-" is the standard input. Never waits, not for the writer of a pipe either. `stop` may be
  // null.
  static Result<std::unique_ptr<ByteStream>> Open(const std::string& path,
                                                  const std::atomic<bool>* stop) {
    const bool is_stdin = path == "-";
    const std::string name = is_stdin ? "standard input" : path;
    // The flags of the standard input are shared with other programs.
    FileDescriptor file(is_stdin
                            ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                            : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (file.get() < 0) return FileError(name, "open", errno);
    struct stat info = {};
    const bool live = fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode);
    return std::unique_ptr<ByteStream>(new ByteStream(name, std::move(file), live, stop));
  }

  const std::string& name() const { return name_; }  // of the file, or "standard input"
  // Whether bytes come in their own time: from anything but a regular file.
  bool live() const { return live_; }

  // What is there and has not been skipped, after waiting for at least so many bytes: fewer at the
  // end, and none within a tenth of a second after *stop became true. Valid until the next call.
  Result<std::span<const uint8_t>> Peek(size_t least = 1) {
    constexpr int kPollMs = 100;
    while (bytes_left() < least) {
      if (stopped()) return std::span<const uint8_t>();
      pollfd ready = {file_.get(), POLLIN, 0};
      const int count = poll(&ready, 1, kPollMs);
      if (count < 0 && errno != EINTR) return FileError(name_, "wait for", errno);
      if (count <= 0) continue;
      std::copy_n(buffer_.begin() + static_cast<ptrdiff_t>(begin_), bytes_left(), buffer_.begin());
      end_ = bytes_left();
      begin_ = 0;
      const ssize_t got = read(file_.get(), buffer_.data() + end_, buffer_.size() - end_);
      if (got == 0) break;
      if (got < 0 && errno != EINTR && errno != EAGAIN) return FileError(name_, "read", errno);
      end_ += static_cast<size_t>(got > 0 ? got : 0);
    }
    return std::span<const uint8_t>(buffer_).subspan(begin_, bytes_left());
  }
  void Skip(size_t count) { begin_ += count; }
  // Appends to `bytes`, a vector, until it has `size` of them; fewer at the end, and when *stop
  // became true. Takes work in proportion to what it appends, however small the pieces are that
  // arrive.
  template <typename Bytes>
  Status TakeUpTo(size_t size, Bytes* bytes) {
    while (bytes->size() < size) {
      ATOLL_ASSIGN_OR_RETURN(std::span<const uint8_t> piece, Peek());
      if (piece.empty()) break;
      piece = piece.first(std::min(piece.size(), size - bytes->size()));
      bytes->insert(bytes->end(), piece.begin(), piece.end());
      Skip(piece.size());
    }
    return Status();
  }
  // Whether Peek gave nothing because of *stop.
  bool stopped() const { return stop_ != nullptr && stop_->load(); }
  // Back to the beginning; false if that cannot be.
  bool Rewind() {
    begin_ = end_ = 0;
    return !live_ && lseek(file_.get(), 0, SEEK_SET) == 0;
  }

 private:
  ByteStream(std::string name, FileDescriptor file, bool live, const std::atomic<bool>* stop)
      : name_(std::move(name)), file_(std::move(file)), live_(live), stop_(stop) {}

  size_t bytes_left() const { return end_ - begin_; }

  const std::string name_;
  const FileDescriptor file_;
  const bool live_;
  const std::atomic<bool>* const stop_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(size_t{1} << 16);
  size_t begin_ = 0;  // of what has not been skipped, in the buffer
  size_t end_ = 0;
};

}  // namespace atollrt
