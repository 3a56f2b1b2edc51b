// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/arg_reduce.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"

namespace atollrt {
namespace {

// Neighbouring results that are found side by side.
constexpr int64_t kNeighbours = 256;

// The indices of `count` results, written in the output's type from element `first` on.
void Store(const ArgReduceParams& p, const int32_t* index, int64_t first, int64_t count,
           uint8_t* output) {
  if (p.output == Element::kInt32) {
    std::copy_n(index, count, reinterpret_cast<int32_t*>(output) + first);
  } else {
    std::copy_n(index, count, reinterpret_cast<int64_t*>(output) + first);
  }
}

template <typename T, typename Better>
int32_t ArgRow(const uint8_t* row, int64_t size, Better better) {
  T best = LoadLittleEndian<T>(row);
  int32_t index = 0;
  for (int64_t i = 1; i < size; ++i) {
    const T value = LoadLittleEndian<T>(row + i * static_cast<int64_t>(sizeof(T)));
    const bool is_better = better(value, best);
    best = is_better ? value : best;
    index = is_better ? static_cast<int32_t>(i) : index;
  }
  return index;
}

// `count` neighbours of a plane, from its element `first` on.
template <typename T, typename Better>
void ArgColumns(const ArgReduceParams& p, const uint8_t* plane, int64_t first, int64_t count,
                Better better, int32_t* index) {
  constexpr int64_t kSize = sizeof(T);
  T best[kNeighbours];
  for (int64_t k = 0; k < count; ++k) {
    best[k] = LoadLittleEndian<T>(plane + (first + k) * kSize);
    index[k] = 0;
  }
  for (int64_t i = 1; i < p.size; ++i) {
    const uint8_t* row = plane + (i * p.inner + first) * kSize;
    for (int64_t k = 0; k < count; ++k) {
      const T value = LoadLittleEndian<T>(row + k * kSize);
      const bool is_better = better(value, best[k]);
      best[k] = is_better ? value : best[k];
      index[k] = is_better ? static_cast<int32_t>(i) : index[k];
    }
  }
}

// ---- Bytes --------------------------------------------------------------------------------------
//
// By an exclusive or with `flip` the best of them become the least.

// [begin, end) of rows that lie next to each other.
void ArgByteRows(const ArgReduceParams& p, const RowLoops& loops, uint8_t flip,
                 const uint8_t* input, uint8_t* output, int64_t begin, int64_t end) {
  int32_t index[kNeighbours];
  for (int64_t row = begin; row < end; row += kNeighbours) {
    const int64_t count = std::min(kNeighbours, end - row);
    loops.arg_least_bytes(input + row * p.size, count, p.size, p.size, flip, index);
    Store(p, index, row, count, output);
  }
}

constexpr int64_t kByteColumns = 16;
typedef int8_t Int8Columns __attribute__((vector_size(kByteColumns)));
typedef uint8_t UInt8Columns __attribute__((vector_size(kByteColumns)));

// Columns of bytes that lie side by side, at least 16, so many at a time; the last ones may be
// found twice. The least bytes so far, and the rows where they are, counted from a row that moves
// on before a byte overflows, are bytes, too: vectors of the smallest CPU hold them. It compares
// int8.
void ArgByteColumns(const ArgReduceParams& p, uint8_t flip, const uint8_t* plane, int64_t count,
                    int32_t* index) {
  constexpr int64_t kRows = 255;
  const int8_t flip_signed = static_cast<int8_t>(flip ^ 0x80);
  for (int64_t first = 0; first < count; first += kByteColumns) {
    first = std::min(first, count - kByteColumns);
    Int8Columns least;
    std::memcpy(&least, plane + first, kByteColumns);
    least ^= flip_signed;
    std::fill_n(index + first, kByteColumns, 0);
    for (int64_t begin = 1; begin < p.size; begin += kRows) {
      const int64_t rows = std::min(kRows, p.size - begin);
      UInt8Columns at = {};  // 1 more than the row from `begin`; 0: before it
      UInt8Columns now = {};
      const uint8_t* row = plane + begin * p.inner + first;
      for (int64_t r = 0; r < rows; ++r, row += p.inner) {
        Int8Columns values;
        std::memcpy(&values, row, kByteColumns);
        values ^= flip_signed;
        now += 1;
        const auto is_less = values < least;
        least = is_less ? values : least;
        at = is_less ? now : at;
      }
      for (int k = 0; k < kByteColumns; ++k) {
        if (at[k] != 0) index[first + k] = static_cast<int32_t>(begin) + at[k] - 1;
      }
    }
  }
}

// ---- All of them --------------------------------------------------------------------------------

// find(plane, first, count, index) for parts of planes: the neighbours [first, first + count) of
// one.
template <typename Find>
void ForEachPart(const ArgReduceParams& p, int64_t element_bytes, const uint8_t* input,
                 uint8_t* output, ThreadPool* pool, Find find) {
  const int64_t plane_bytes = p.size * p.inner * element_bytes;
  const int64_t blocks = (p.inner + kNeighbours - 1) / kNeighbours;  // of a plane
  const int64_t work = std::max<int64_t>(p.size * std::min(p.inner, kNeighbours), 1);
  ParallelRanges(pool, p.outer * blocks, std::max<int64_t>(kParallelGrain / work, 1),
                 [&](int64_t begin, int64_t end) {
                   int32_t index[kNeighbours];
                   for (int64_t block = begin; block < end; ++block) {
                     const int64_t first = block % blocks * kNeighbours;
                     const int64_t count = std::min(kNeighbours, p.inner - first);
                     find(input + block / blocks * plane_bytes, first, count, index);
                     Store(p, index, block / blocks * p.inner + first, count, output);
                   }
                 });
}

template <typename T, typename Better>
void ArgPlanes(const ArgReduceParams& p, const uint8_t* input, uint8_t* output, ThreadPool* pool,
               Better better) {
  ForEachPart(p, sizeof(T), input, output, pool,
              [&](const uint8_t* plane, int64_t first, int64_t count, int32_t* index) {
                if (p.inner == 1) {
                  index[0] = ArgRow<T>(plane, p.size, better);
                } else {
                  ArgColumns<T>(p, plane, first, count, better, index);
                }
              });
}

template <typename T>
void ArgNumbers(const ArgReduceParams& p, const uint8_t* input, uint8_t* output, ThreadPool* pool) {
  if (p.which == Extreme::kMax) {
    ArgPlanes<T>(p, input, output, pool, [](const auto& x, const auto& y) { return x > y; });
  } else {
    ArgPlanes<T>(p, input, output, pool, [](const auto& x, const auto& y) { return x < y; });
  }
}

void ArgBytes(const ArgReduceParams& p, const RowLoops& loops, const uint8_t* input,
              uint8_t* output, ThreadPool* pool) {
  const uint8_t flip = static_cast<uint8_t>((p.input == Element::kInt8 ? 0x80 : 0) ^
                                            (p.which == Extreme::kMax ? 0xff : 0));
  if (p.inner == 1) {
    const int64_t grain = std::max<int64_t>(kParallelGrain / std::max<int64_t>(p.size, 1), 1);
    ParallelRanges(pool, p.outer, grain, [&](int64_t begin, int64_t end) {
      ArgByteRows(p, loops, flip, input, output, begin, end);
    });
    return;
  }
  ForEachPart(p, 1, input, output, pool,
              [&](const uint8_t* plane, int64_t first, int64_t count, int32_t* index) {
                if (count >= kByteColumns) {
                  ArgByteColumns(p, flip, plane + first, count, index);
                } else {
                  ArgColumns<uint8_t>(
                      p, plane, first, count,
                      [=](uint8_t x, uint8_t y) { return (x ^ flip) < (y ^ flip); }, index);
                }
              });
}

}  // namespace

void ArgReduce(const ArgReduceParams& p, const RowLoops& loops, const uint8_t* input,
               uint8_t* output, ThreadPool* pool) {
  switch (p.input) {
    case Element::kInt8:
    case Element::kUInt8:
      return ArgBytes(p, loops, input, output, pool);
    case Element::kInt16:
      return ArgNumbers<int16_t>(p, input, output, pool);
    case Element::kInt32:
      return ArgNumbers<int32_t>(p, input, output, pool);
    case Element::kUInt32:
      return ArgNumbers<uint32_t>(p, input, output, pool);
    case Element::kInt64:
      return ArgNumbers<int64_t>(p, input, output, pool);
    case Element::kFloat32:
      return ArgNumbers<float>(p, input, output, pool);
    case Element::kBool:  // no number
      return;
  }
}

}  // namespace atollrt
