// SPDX-License-Identifier: Apache-2.0
//
// What libatoll-core, which knows no brokers, has in place of shared_buffer.cc.
#include "runtime/base/buffer.h"

namespace atollrt {

Result<Buffer> Buffer::AllocateShared(size_t) { return MapShared(-1); }

Result<Buffer> Buffer::MapShared(int) {
  return Unsupported("libatoll-core shares no memory; libatoll does");
}

}  // namespace atollrt
