// SPDX-License-Identifier: Apache-2.0
//
// The memory of the emulated device and the streams that go in and out. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"

namespace atollrt {

// A memory of the device, and when its bytes last changed. Time is counted in writes and kept per
// page, so that whoever derives something from the bytes (packed weights) can tell later whether it
// still holds.
//
// Bytes that nobody wrote since a reset are what a program must not rely on: 0xA5, which is no
// opcode. Devices, recordings and profiles may speak of gigabytes: of the host's memory only those
// blocks are taken that were read or written, and beyond the first 64 MiB, more than chips have,
// what was not written is zero.
class OnChipMemory {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  // kResourceExhausted if the host has not that much.
  static Result<OnChipMemory> Allocate(uint64_t size_bytes);

  uint64_t size() const { return bytes_.size(); }
  bool Contains(uint64_t address, uint64_t size_bytes) const {
    return address <= size() && size_bytes <= size() - address;
  }

  // The bytes [address, address + size_bytes), which the memory must contain. WriteAt counts as a
  // change of all of them, so call it anew for every write.
  const uint8_t* ReadAt(uint64_t address, uint64_t size_bytes);
  uint8_t* WriteAt(uint64_t address, uint64_t size_bytes);

  // As after a reset: all bytes change to what a program must not rely on.
  void Undefine();

  // All bytes; a change made through them must be announced by WriteAt.
  std::span<uint8_t> bytes() {
    ReadAt(0, size());
    return bytes_.bytes();
  }

  // The present time, for ChangedSince.
  uint64_t now() const { return now_; }
  // False only if none of the bytes changed after `time`; true also if a neighbour on the same
  // page did.
  bool ChangedSince(uint64_t time, uint64_t address, uint64_t size_bytes) const;

 private:
  Buffer bytes_;
  std::vector<uint64_t> page_changed_;  // time of the last write
  std::vector<bool> block_filled_;      // since it became undefined; of the first 64 MiB
  uint64_t now_ = 0;
};

// Where the core takes bytes from, and where it leaves them. As much as available() and room() say
// can be moved by the next call.
class ByteSource {
 public:
  virtual size_t available() = 0;
  // Moves the next bytes, at most available(), into `destination`; returns how many: none if what
  // is behind this has failed.
  virtual size_t Take(std::span<uint8_t> destination) = 0;

 protected:
  ~ByteSource() = default;
};
class ByteSink {
 public:
  virtual size_t room() = 0;
  // Appends `bytes`, at most room(); returns how many: none if what is behind this has failed.
  virtual size_t Append(std::span<const uint8_t> bytes) = 0;

 protected:
  ~ByteSink() = default;
};

// Bytes in the order in which they came. Memory is kept for reuse, so a steady flow allocates
// nothing. The limit is for those who ask for room(); beyond it, its owner bounds it.
class ByteQueue final : public ByteSource, public ByteSink {
 public:
  explicit ByteQueue(size_t limit_bytes = SIZE_MAX) : limit_(limit_bytes) {}

  size_t size() const { return bytes_.size() - taken_; }
  size_t available() override { return size(); }
  size_t room() override { return limit_ - std::min(limit_, size()); }

  // Makes room for so many bytes: to append as many to an empty queue then allocates nothing,
  // whatever is taken in between.
  void Reserve(size_t size_bytes) { bytes_.reserve(size_bytes); }

  size_t Append(std::span<const uint8_t> bytes) override {
    if (taken_ >= bytes_.size() / 2) {  // the move is paid for by the bytes taken before
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(taken_));
      taken_ = 0;
    }
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return bytes.size();
  }

  // Moves the oldest bytes into `destination` until it is full or the queue empty; returns how
  // many.
  size_t Take(std::span<uint8_t> destination) override {
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
  size_t limit_;
  std::vector<uint8_t> bytes_;
  size_t taken_ = 0;  // of the front of bytes_
};

// Host memory that instructions borrow while they run. It grows to the most that one has asked for,
// so steady inferences allocate nothing, and there is a bound to what a program can make us take,
// which a small device has less of: whoever is refused runs as plain loops, which need none.
class HostScratch {
 public:
  // Of a device with so much on-chip memory, at most 4 GiB: it takes eight times that of the
  // host at most, within 4 and 64 MiB.
  explicit HostScratch(uint64_t device_memory_bytes)
      : limit_(std::clamp<uint64_t>(8 * device_memory_bytes, 4 << 20, 64 << 20)) {}

  // Whether data() has, from now on, at least `size_bytes`. What was in it may be lost.
  bool Reserve(size_t size_bytes) {
    if (size_bytes > buffer_.size() && size_bytes <= limit_) {
      buffer_ = Buffer();
      if (auto grown = Buffer::Allocate(size_bytes); grown.ok()) buffer_ = *std::move(grown);
    }
    return size_bytes <= buffer_.size();
  }

  uint8_t* data() { return buffer_.data(); }  // aligned to Buffer::kAlignment

 private:
  size_t limit_;
  Buffer buffer_;
};

}  // namespace atollrt
