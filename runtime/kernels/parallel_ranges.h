// SPDX-License-Identifier: Apache-2.0
//
// ParallelRanges: the split that suits loops over many like elements. Each thread gets one
// contiguous part, and what takes less time than waking a thread is not split at all.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/kernels/thread_pool.h"

namespace atollrt {

// For elements that take a fraction of a nanosecond: about ten microseconds of work.
inline constexpr int64_t kParallelGrain = 1 << 15;

// Into how many parts `count` elements are worth splitting, at most one per thread of `pool` (may
// be nullptr): each gets at least `grain` (at least 1), unless there is only one.
inline int ParallelParts(const ThreadPool* pool, int64_t count, int64_t grain) {
  const int64_t threads = pool == nullptr ? 1 : pool->threads();
  return static_cast<int>(std::clamp<int64_t>(count / grain, 1, threads));
}

// body(begin, end) for the parts of [0, count), on `pool` if there are several.
template <typename Body>
void ParallelRanges(ThreadPool* pool, int64_t count, int64_t grain, const Body& body) {
  const int parts = ParallelParts(pool, count, grain);
  if (count == 0) return;
  if (parts == 1) return body(int64_t{0}, count);
  // Products of counts below 2^40 and threads fit.
  ParallelFor(pool, parts,
              [&](int part, int) { body(count * part / parts, count * (part + 1) / parts); });
}

}  // namespace atollrt
