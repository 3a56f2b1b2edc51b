// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "runtime/base/sort_few.h"
#include "runtime/base/thread_pool.h"

namespace atollrt {
namespace {

using Loop = StridedCopy::Loop;

// A transposition walks one tensor against its grain. In squares of this side the cache lines of
// both are used up while they are near.
constexpr int64_t kTile = 32;

// The bytes of a run. Runs of lengths that the compiler knows are one or two moves.
template <size_t kBytes>
struct Exactly {
  explicit Exactly(size_t) {}
  void operator()(const uint8_t* in, uint8_t* out) const { std::memcpy(out, in, kBytes); }
};
// Of kHalf to 2 * kHalf bytes: the first and the last kHalf, which overlap.
template <size_t kHalf>
struct UpToTwice {
  explicit UpToTwice(size_t run) : rest(run - kHalf) {}
  void operator()(const uint8_t* in, uint8_t* out) const {
    uint8_t first[kHalf], last[kHalf];
    std::memcpy(first, in, kHalf);
    std::memcpy(last, in + rest, kHalf);
    std::memcpy(out, first, kHalf);
    std::memcpy(out + rest, last, kHalf);
  }
  const size_t rest;
};
struct Any {
  explicit Any(size_t run_bytes) : run(run_bytes) {}
  void operator()(const uint8_t* in, uint8_t* out) const { std::memcpy(out, in, run); }
  const size_t run;
};

// visit(copy of a run).
template <typename Visitor>
void WithRun(size_t run, const Visitor& visit) {
  switch (run) {
    case 1:
      return visit(Exactly<1>(run));
    case 2:
      return visit(Exactly<2>(run));
    case 3:
      return visit(Exactly<3>(run));
    case 4:
      return visit(Exactly<4>(run));
    case 8:
      return visit(Exactly<8>(run));
    case 16:
      return visit(Exactly<16>(run));
    default:
      break;
  }
  if (run < 8) return visit(UpToTwice<4>(run));
  if (run < 16) return visit(UpToTwice<8>(run));
  if (run <= 32) return visit(UpToTwice<16>(run));
  if (run <= 64) return visit(UpToTwice<32>(run));
  visit(Any(run));
}

template <typename CopyRun>
void CopyRow(const Loop& loop, const CopyRun& copy, const uint8_t* in, uint8_t* out) {
  for (int64_t i = 0; i < loop.count; ++i) {
    copy(in, out);
    in += loop.in_stride;
    out += loop.out_stride;
  }
}

template <typename CopyRun>
void CopyPlane(const Loop& outer, const Loop& inner, size_t run, const CopyRun& copy,
               const uint8_t* in, uint8_t* out) {
  const bool tiled = outer.in_stride == static_cast<int64_t>(run);
  const int64_t rows = tiled ? kTile : outer.count;
  const int64_t columns = tiled ? kTile : inner.count;
  for (int64_t y = 0; y < outer.count; y += rows) {
    for (int64_t x = 0; x < inner.count; x += columns) {
      Loop part = inner;
      part.count = std::min(columns, inner.count - x);
      const int64_t end = std::min(outer.count, y + rows);
      for (int64_t i = y; i < end; ++i) {
        CopyRow(part, copy, in + i * outer.in_stride + x * inner.in_stride,
                out + i * outer.out_stride + x * inner.out_stride);
      }
    }
  }
}

template <typename CopyRun>
void CopyLoops(const Loop& outer, std::span<const Loop> inner, size_t run, const CopyRun& copy,
               const uint8_t* in, uint8_t* out) {
  if (inner.empty()) return CopyRow(outer, copy, in, out);
  if (inner.size() == 1) return CopyPlane(outer, inner[0], run, copy, in, out);
  for (int64_t i = 0; i < outer.count; ++i) {
    CopyLoops(inner[0], inner.subspan(1), run, copy, in + i * outer.in_stride,
              out + i * outer.out_stride);
  }
}

// Less is copied before another thread would have begun.
constexpr int64_t kParallelBytes = 1 << 17;

// Bytes of the output from the first to the last that a copy writes.
int64_t OutputExtent(const StridedCopy& copy) {
  int64_t extent = copy.run_bytes;
  for (const Loop& loop : copy.loops) extent += (loop.count - 1) * loop.out_stride;
  return extent;
}

// ClipStridedCopy of loops that are sorted, outermost first.
void ClipSorted(const StridedCopy& copy, int64_t begin, int64_t end,
                std::vector<StridedCopy>* parts) {
  const int64_t extent = OutputExtent(copy);
  const int64_t first = copy.out_offset;
  if (first >= end || first + extent <= begin) return;
  if (first >= begin && first + extent <= end) {
    parts->push_back(copy);
    return;
  }
  if (copy.loops.empty()) {
    const int64_t from = std::max(first, begin);
    parts->push_back({.in_offset = copy.in_offset + from - first,
                      .out_offset = from,
                      .run_bytes = std::min(first + extent, end) - from,
                      .loops = {}});
    return;
  }
  const Loop loop = copy.loops.front();
  const int64_t stride = loop.out_stride;
  const int64_t step_extent = extent - (loop.count - 1) * stride;
  const auto steps = [&](int64_t index, int64_t count) {
    StridedCopy part{.in_offset = copy.in_offset + index * loop.in_stride,
                     .out_offset = first + index * stride,
                     .run_bytes = copy.run_bytes,
                     .loops = {copy.loops.begin() + 1, copy.loops.end()}};
    if (count > 1) part.loops.insert(part.loops.begin(), {count, loop.in_stride, stride});
    return part;
  };
  // The steps that write in the range, and those of them that write nothing else: all but the
  // first and the last, perhaps.
  const int64_t from = std::max<int64_t>(begin - first, 0);
  const int64_t to = end - first;
  const int64_t touched = from < step_extent ? 0 : (from - step_extent) / stride + 1;
  const int64_t touched_end = std::min(loop.count, (to - 1) / stride + 1);
  const int64_t whole = (from + stride - 1) / stride;
  const int64_t whole_end =
      to < step_extent ? 0 : std::min(loop.count, (to - step_extent) / stride + 1);
  for (int64_t i = touched; i < touched_end; ++i) {
    if (i == whole && whole < whole_end) {
      parts->push_back(steps(i, whole_end - whole));
      i = whole_end - 1;
    } else {
      ClipSorted(steps(i, 1), begin, end, parts);
    }
  }
}

}  // namespace

StridedCopy MakeStridedCopy(const StridedCopy& elements, size_t element_bytes) {
  const int64_t bytes = static_cast<int64_t>(element_bytes);
  StridedCopy copy;
  copy.in_offset = elements.in_offset * bytes;
  copy.out_offset = elements.out_offset * bytes;
  copy.run_bytes = bytes;
  std::vector<Loop>& loops = copy.loops;
  for (const Loop& loop : elements.loops) {
    if (loop.count == 0) return StridedCopy();
    if (loop.count > 1) {
      loops.push_back({loop.count, loop.in_stride * bytes, loop.out_stride * bytes});
    }
  }
  // In the order of the output, so that writes are sequential and neighbours can merge.
  SortFew(&loops, [](const Loop& a, const Loop& b) {
    return std::abs(a.out_stride) > std::abs(b.out_stride);
  });
  for (size_t i = loops.size(); i-- > 1;) {
    Loop& outer = loops[i - 1];
    const Loop& inner = loops[i];
    if (outer.in_stride == inner.in_stride * inner.count &&
        outer.out_stride == inner.out_stride * inner.count) {
      outer = {outer.count * inner.count, inner.in_stride, inner.out_stride};
      loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (!loops.empty() && loops.back().in_stride == copy.run_bytes &&
      loops.back().out_stride == copy.run_bytes) {
    copy.run_bytes *= loops.back().count;
    loops.pop_back();
  }
  // A transposition: the loop that is sequential in the input goes next to the innermost one.
  for (size_t i = 0; i + 2 < loops.size(); ++i) {
    if (loops[i].in_stride != copy.run_bytes) continue;
    std::rotate(loops.begin() + static_cast<std::ptrdiff_t>(i),
                loops.begin() + static_cast<std::ptrdiff_t>(i) + 1, loops.end() - 1);
    break;
  }
  return copy;
}

void ClipStridedCopy(const StridedCopy& copy, int64_t begin, int64_t end,
                     std::vector<StridedCopy>* parts) {
  if (copy.run_bytes == 0) return;
  if (copy.out_offset >= begin && copy.out_offset + OutputExtent(copy) <= end) {
    parts->push_back(copy);  // with its loops in their order
    return;
  }
  StridedCopy sorted = copy;
  SortFew(&sorted.loops,
          [](const Loop& outer, const Loop& inner) { return outer.out_stride > inner.out_stride; });
  ClipSorted(sorted, begin, end, parts);
}

void RunStridedCopy(const StridedCopy& copy, const uint8_t* in, uint8_t* out, ThreadPool* pool) {
  if (copy.run_bytes == 0) return;
  in += copy.in_offset;
  out += copy.out_offset;
  if (copy.loops.empty()) {
    if (in == out) return;
    ParallelRanges(pool, copy.run_bytes, kParallelBytes, [&](int64_t begin, int64_t end) {
      std::memcpy(out + begin, in + begin, static_cast<size_t>(end - begin));
    });
    return;
  }
  // The steps of the outermost loop are shared out.
  const Loop& outer = copy.loops[0];
  int64_t step_bytes = copy.run_bytes;
  for (size_t i = 1; i < copy.loops.size(); ++i) step_bytes *= copy.loops[i].count;
  const std::span<const Loop> inner = std::span(copy.loops).subspan(1);
  const size_t run = static_cast<size_t>(copy.run_bytes);
  ParallelRanges(pool, outer.count, std::max<int64_t>(kParallelBytes / step_bytes, 1),
                 [&](int64_t begin, int64_t end) {
                   const Loop part{end - begin, outer.in_stride, outer.out_stride};
                   WithRun(run, [&](const auto& copy_run) {
                     CopyLoops(part, inner, run, copy_run, in + begin * outer.in_stride,
                               out + begin * outer.out_stride);
                   });
                 });
}

void CopyRuns(const Loop& loop, int64_t run_bytes, const uint8_t* in, uint8_t* out) {
  WithRun(static_cast<size_t>(run_bytes),
          [&](const auto& copy_run) { CopyRow(loop, copy_run, in, out); });
}

void FillElements(const uint8_t* element, size_t element_bytes, int64_t count, uint8_t* out) {
  if (count == 0) return;
  const size_t total = static_cast<size_t>(count) * element_bytes;
  if (std::all_of(element, element + element_bytes,
                  [element](uint8_t byte) { return byte == element[0]; })) {
    std::memset(out, element[0], total);
    return;
  }
  // What is written so far, again and again.
  std::memcpy(out, element, element_bytes);
  for (size_t done = element_bytes; done < total;) {
    const size_t part = std::min(done, total - done);
    std::memcpy(out + done, out, part);
    done += part;
  }
}

}  // namespace atollrt
