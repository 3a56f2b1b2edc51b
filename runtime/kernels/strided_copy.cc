// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace atollrt {
namespace {

using Loop = StridedCopy::Loop;

// A transposition walks one tensor against its grain. In squares of this side the cache lines of
// both are used up while they are near.
constexpr int64_t kTile = 32;

// `kRun` bytes, known to the compiler, or `run` of them if kRun is 0.
template <size_t kRun>
void CopyRow(const Loop& loop, size_t run, const uint8_t* in, uint8_t* out) {
  for (int64_t i = 0; i < loop.count; ++i) {
    std::memcpy(out, in, kRun == 0 ? run : kRun);
    in += loop.in_stride;
    out += loop.out_stride;
  }
}

template <size_t kRun>
void CopyPlane(const Loop& outer, const Loop& inner, size_t run, const uint8_t* in, uint8_t* out) {
  const bool tiled = outer.in_stride == static_cast<int64_t>(run);
  const int64_t rows = tiled ? kTile : outer.count;
  const int64_t columns = tiled ? kTile : inner.count;
  for (int64_t y = 0; y < outer.count; y += rows) {
    for (int64_t x = 0; x < inner.count; x += columns) {
      Loop part = inner;
      part.count = std::min(columns, inner.count - x);
      const int64_t end = std::min(outer.count, y + rows);
      for (int64_t i = y; i < end; ++i) {
        CopyRow<kRun>(part, run, in + i * outer.in_stride + x * inner.in_stride,
                      out + i * outer.out_stride + x * inner.out_stride);
      }
    }
  }
}

template <size_t kRun>
void CopyLoops(const Loop* loops, size_t count, size_t run, const uint8_t* in, uint8_t* out) {
  if (count == 0) {
    std::memcpy(out, in, run);
  } else if (count == 1) {
    CopyRow<kRun>(loops[0], run, in, out);
  } else if (count == 2) {
    CopyPlane<kRun>(loops[0], loops[1], run, in, out);
  } else {
    for (int64_t i = 0; i < loops[0].count; ++i) {
      CopyLoops<kRun>(loops + 1, count - 1, run, in + i * loops[0].in_stride,
                      out + i * loops[0].out_stride);
    }
  }
}

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
  std::stable_sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) {
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
  std::stable_sort(
      sorted.loops.begin(), sorted.loops.end(),
      [](const Loop& outer, const Loop& inner) { return outer.out_stride > inner.out_stride; });
  ClipSorted(sorted, begin, end, parts);
}

void RunStridedCopy(const StridedCopy& copy, const uint8_t* in, uint8_t* out) {
  if (copy.run_bytes == 0) return;
  const size_t run = static_cast<size_t>(copy.run_bytes);
  in += copy.in_offset;
  out += copy.out_offset;
  const Loop* loops = copy.loops.data();
  const size_t count = copy.loops.size();
  switch (run) {
    case 1:
      return CopyLoops<1>(loops, count, run, in, out);
    case 2:
      return CopyLoops<2>(loops, count, run, in, out);
    case 3:
      return CopyLoops<3>(loops, count, run, in, out);
    case 4:
      return CopyLoops<4>(loops, count, run, in, out);
    case 8:
      return CopyLoops<8>(loops, count, run, in, out);
    case 16:
      return CopyLoops<16>(loops, count, run, in, out);
    default:
      return CopyLoops<0>(loops, count, run, in, out);
  }
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
