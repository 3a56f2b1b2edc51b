// SPDX-License-Identifier: Apache-2.0
//
// HostScratch: host memory that instructions borrow while they run. It grows to the most that one
// has asked for, so steady inferences allocate nothing, and there is a bound to what a program can
// make us take: whoever is refused runs as plain loops, which need none. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "runtime/base/buffer.h"

namespace atollrt {

class HostScratch {
 public:
  // Whether data() has, from now on, at least `size_bytes`. What was in it may be lost.
  bool Reserve(size_t size_bytes) {
    constexpr size_t kMax = 64 << 20;
    if (size_bytes > buffer_.size() && size_bytes <= kMax) {
      buffer_ = Buffer();
      if (auto grown = Buffer::Allocate(size_bytes); grown.ok()) buffer_ = *std::move(grown);
    }
    return size_bytes <= buffer_.size();
  }

  uint8_t* data() { return buffer_.data(); }  // aligned to Buffer::kAlignment

 private:
  Buffer buffer_;
};

}  // namespace atollrt
