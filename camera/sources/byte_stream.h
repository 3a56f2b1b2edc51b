// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

// A file, a pipe or the standard input, read through a buffer of 64 KiB.
class ByteStream {
 public:
  // "-" is the standard input. Never waits, not for the writer of a pipe either. `stop` may be
  // null.
  static Result<std::unique_ptr<ByteStream>> Open(const std::string& path,
                                                  const std::atomic<bool>* stop);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  const std::string& name() const { return name_; }  // of the file, or "standard input"
  // Whether bytes come in their own time: from anything but a regular file.
  bool live() const { return live_; }

  // What is there and has not been skipped, after waiting for at least one byte. Nothing at the
  // end, and within a tenth of a second after *stop became true. Valid until the next call.
  Result<std::span<const uint8_t>> Peek();
  void Skip(size_t count) { begin_ += count; }
  // Whether Peek gave nothing because of *stop.
  bool stopped() const { return stop_ != nullptr && stop_->load(); }
  // Back to the beginning; false if that cannot be.
  bool Rewind();

 private:
  ByteStream(std::string name, int fd, bool live, const std::atomic<bool>* stop)
      : name_(std::move(name)), fd_(fd), live_(live), stop_(stop) {}

  const std::string name_;
  const int fd_;
  const bool live_;
  const std::atomic<bool>* const stop_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0;  // of what has not been skipped, in the buffer
  size_t end_ = 0;
};

}  // namespace atollrt
