// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace atollrt {

// Memory of this process that a device is told of.
struct HostMemory {
  // Implicit: what is known of most memory is where it is.
  HostMemory(std::span<uint8_t> its_bytes, int its_memfd = -1)  // NOLINT(google-explicit-*)
      : bytes(its_bytes), memfd(its_memfd) {}

  std::span<uint8_t> bytes;
  // If it is a whole memfd, sealed against changes of its size, that another process may map: that.
  // Whoever has lent it and does not get it back may put another memfd in the place of both, the
  // number and the mapping, with the same bytes. -1: it is not.
  int memfd = -1;
  // Or may not, as others have it, too: then it is lent to be read alone.
  bool may_be_replaced = true;
};

}  // namespace atollrt
