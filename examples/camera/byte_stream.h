// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace atollrt {

// A file, a pipe or the standard input, read in pieces.
class ByteStream {
 public:
  // "-" is the standard input. `stop` may be null.
  static Result<std::unique_ptr<ByteStream>> Open(const std::string& path,
                                                  const std::atomic<bool>* stop);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  const std::string& name() const { return name_; }  // of the file, or "standard input"
  // Whether bytes come in their own time: from anything but a regular file.
  bool live() const { return live_; }

  // Appends what there is, at most `size` bytes, after waiting for at least one. False at the end,
  // and within a tenth of a second after *stop became true.
  Result<bool> Read(size_t size, std::vector<uint8_t>* bytes);
  // Back to the beginning; false if that cannot be.
  bool Rewind();

 private:
  ByteStream(std::string name, int fd, bool live, const std::atomic<bool>* stop)
      : name_(std::move(name)), fd_(fd), live_(live), stop_(stop) {}

  const std::string name_;
  const int fd_;
  const bool live_;
  const std::atomic<bool>* const stop_;
};

}  // namespace atollrt
