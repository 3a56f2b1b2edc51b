// SPDX-License-Identifier: Apache-2.0
//
// Scratch: arrays of several types carved out of one block of memory. A kernel names its arrays in
// one function, which runs twice: without a block, to learn its size, and with it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace atollrt {

class Scratch {
 public:
  // `block` is aligned to 64 bytes and as large as size() is in the end, or nullptr: count only.
  explicit Scratch(uint8_t* block) : block_(block) {}

  template <typename T>
  T* Take(int64_t count) {
    constexpr size_t kAlignment = 64;
    T* const array = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + size_);
    size_ += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) & ~(kAlignment - 1);
    return array;
  }

  size_t size() const { return size_; }

 private:
  uint8_t* const block_;
  size_t size_ = 0;
};

}  // namespace atollrt
