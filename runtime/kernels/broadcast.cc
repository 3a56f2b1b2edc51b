// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/broadcast.h"

#include <algorithm>

namespace atollrt {

Broadcast MakeBroadcast(std::span<const int32_t> shape1, std::span<const int32_t> shape2) {
  const auto size_at = [](std::span<const int32_t> shape, size_t from_right) -> int64_t {
    return from_right < shape.size() ? shape[shape.size() - 1 - from_right] : 1;
  };
  Broadcast result;
  result.count = 1;
  std::vector<BroadcastLoop> loops;  // from the innermost outwards
  int64_t elements1 = 1, elements2 = 1;
  for (size_t i = 0; i < std::max(shape1.size(), shape2.size()); ++i) {
    const int64_t size1 = size_at(shape1, i);
    const int64_t size2 = size_at(shape2, i);
    const BroadcastLoop loop{size1 == 1 ? size2 : size1, size1 == 1 ? 0 : elements1,
                             size2 == 1 ? 0 : elements2};
    result.count *= loop.count;
    elements1 *= size1;
    elements2 *= size2;
    if (loop.count == 1) continue;
    // An operand continues a loop if it takes up where that ends, or stands still in both.
    const auto continues = [&](int64_t BroadcastLoop::*stride) {
      const BroadcastLoop& last = loops.back();
      return last.*stride == 0 ? loop.*stride == 0 : loop.*stride == last.count * last.*stride;
    };
    if (!loops.empty() && continues(&BroadcastLoop::stride1) &&
        continues(&BroadcastLoop::stride2)) {
      loops.back().count *= loop.count;
    } else {
      loops.push_back(loop);
    }
  }
  if (result.count == 0) return {};
  if (loops.empty()) loops.push_back({1, 1, 1});
  result.inner = loops.front();
  result.outer.assign(loops.rbegin(), loops.rend() - 1);
  return result;
}

}  // namespace atollrt
