// SPDX-License-Identifier: Apache-2.0
//
// ByteQueue: bytes in the order in which they came, for the streams of the core. Memory is kept
// for reuse, so a steady flow allocates nothing. Unbounded: its owner bounds it. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace atollrt {

class ByteQueue {
 public:
  size_t size() const { return bytes_.size() - taken_; }

  // Makes room for so many bytes: to append as many to an empty queue then allocates nothing,
  // whatever is taken in between.
  void Reserve(size_t size_bytes) { bytes_.reserve(size_bytes); }

  void Append(std::span<const uint8_t> bytes) {
    if (taken_ >= bytes_.size() / 2) {  // the move is paid for by the bytes taken before
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(taken_));
      taken_ = 0;
    }
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  // Moves the oldest bytes into `destination` until it is full or the queue empty; returns how
  // many.
  size_t Take(std::span<uint8_t> destination) {
    const size_t count = std::min(size(), destination.size());
    if (count > 0) std::memcpy(destination.data(), bytes_.data() + taken_, count);
    taken_ += count;
    return count;
  }

  // Empties the queue and gives its memory back.
  void Clear() {
    bytes_ = {};
    taken_ = 0;
  }

 private:
  std::vector<uint8_t> bytes_;
  size_t taken_ = 0;  // of the front of bytes_
};

}  // namespace atollrt
