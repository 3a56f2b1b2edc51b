// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/pool2d.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"

namespace atollrt {
namespace {

// pool_window(window, to) for the part of each window that lies inside its image; the result of
// p.channels elements goes to `to`.
template <typename T, typename PoolWindow>
void ForEachWindow(const Pool2DParams& p, const uint8_t* input, T* output, ThreadPool* pool,
                   PoolWindow pool_window) {
  const int64_t cell_bytes = p.channels * static_cast<int64_t>(sizeof(T));
  const int64_t row_bytes = p.input_w * cell_bytes;
  const auto pool_line = [&](int64_t line) {  // counted through all images
    const uint8_t* image = input + line / p.output_h * p.input_h * row_bytes;
    T* to = output + line * p.output_w * p.channels;
    const int64_t top = line % p.output_h * p.stride_h - p.pad_top;
    const int64_t y0 = std::max<int64_t>(top, 0);
    const int64_t y1 = std::min<int64_t>(top + p.kernel_h, p.input_h);
    for (int32_t x = 0; x < p.output_w; ++x, to += p.channels) {
      const int64_t left = int64_t{x} * p.stride_w - p.pad_left;
      const int64_t x0 = std::max<int64_t>(left, 0);
      const int64_t x1 = std::min<int64_t>(left + p.kernel_w, p.input_w);
      pool_window(ByteWindow{.cells = image + y0 * row_bytes + x0 * cell_bytes,
                             .rows = y1 - y0,
                             .columns = x1 - x0,
                             .row_bytes = row_bytes,
                             .column_bytes = cell_bytes},
                  to);
    }
  };
  // Elements read for one row; sizes may be huge, their windows hardly all at once.
  const double work = static_cast<double>(p.output_w) * p.channels *
                      std::min(p.kernel_h, p.input_h) * std::min(p.kernel_w, p.input_w);
  const int64_t grain =
      work >= static_cast<double>(kParallelGrain) ? 1 : kParallelGrain / static_cast<int64_t>(work);
  ParallelRanges(pool, int64_t{p.batch} * p.output_h, grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) pool_line(line);
  });
}

// ---- Windows of any elements --------------------------------------------------------------------

// Channels are taken in blocks whose running values stay in the first-level cache.
constexpr int32_t kBlock = 256;

// combine(c, element) for channels [first, first + count) of all cells; c counts from `first`.
template <typename T, typename Combine>
void ForEachElement(const ByteWindow& w, int64_t first, int64_t count, Combine combine) {
  for (int64_t y = 0; y < w.rows; ++y) {
    for (int64_t x = 0; x < w.columns; ++x) {
      const uint8_t* from =
          w.cells + y * w.row_bytes + x * w.column_bytes + first * static_cast<int64_t>(sizeof(T));
      for (int64_t c = 0; c < count; ++c) {
        combine(c, LoadLittleEndian<T>(from + c * static_cast<int64_t>(sizeof(T))));
      }
    }
  }
}

int16_t ClampTo(int16_t value, ClampRange range) {
  return static_cast<int16_t>(Clamp(value, range.min, range.max));
}
float ClampTo(float value, const ValueClamp<float>& clamp) { return clamp(value); }

template <typename T, typename Range>
void MaxOf(const ByteWindow& w, const Range& range, int64_t channels, T* to) {
  T best[kBlock];
  for (int64_t first = 0; first < channels; first += kBlock) {
    const int64_t count = std::min<int64_t>(kBlock, channels - first);
    std::fill_n(best, count, std::numeric_limits<T>::lowest());
    ForEachElement<T>(w, first, count,
                      [&](int64_t c, T value) { best[c] = std::max(best[c], value); });
    for (int64_t c = 0; c < count; ++c) to[first + c] = ClampTo(best[c], range);
  }
}

template <typename T>
void DivideSums(const uint32_t* sums, int64_t n, ClampRange range, int64_t count, T* to) {
  // The integer division is done in double, which has vector instructions, and is exact: both
  // operands are integers below 2^53, and a quotient q that is no integer lies at least 1/n below
  // the next one, which is 2^-33 of q, far more than its rounding error.
  const double divisor = static_cast<double>(n);
  const double half = static_cast<double>(n / 2);
  for (int64_t c = 0; c < count; ++c) {
    const int32_t sum = static_cast<int32_t>(sums[c]);
    const double rounded = sum > 0 ? sum + half : sum - half;
    to[c] = static_cast<T>(Clamp(static_cast<int32_t>(rounded / divisor), range.min, range.max));
  }
}

void DivideSums(const float* sums, int64_t n, const ValueClamp<float>& range, int64_t count,
                float* to) {
  const float divisor = static_cast<float>(n);
  for (int64_t c = 0; c < count; ++c) to[c] = range(sums[c] / divisor);
}

// value(element) is what is summed.
template <typename T, typename Range, typename Value>
void AverageOf(const ByteWindow& w, const Range& range, int64_t channels, T* to, Value value) {
  // Unsigned: sums of integers beyond the limits of the header wrap.
  using Sum = std::conditional_t<std::is_integral_v<T>, uint32_t, float>;
  Sum sums[kBlock];
  for (int64_t first = 0; first < channels; first += kBlock) {
    const int64_t count = std::min<int64_t>(kBlock, channels - first);
    std::fill_n(sums, count, Sum{0});
    ForEachElement<T>(w, first, count,
                      [&](int64_t c, T element) { sums[c] += static_cast<Sum>(value(element)); });
    DivideSums(sums, w.rows * w.columns, range, count, to + first);
  }
}

template <typename T, typename Range>
void PoolNumbers(const Pool2DParams& p, const Range& range, const uint8_t* input, T* output,
                 ThreadPool* pool) {
  ForEachWindow(p, input, output, pool, [&](const ByteWindow& window, T* to) {
    if (p.kind == PoolKind::kMax) {
      MaxOf(window, range, p.channels, to);
    } else {
      AverageOf(window, range, p.channels, to, [](T value) { return value; });
    }
  });
}

}  // namespace

void Pool2D(const Pool2DParams& params, const RowLoops& loops, const uint8_t* input,
            uint8_t* output, ThreadPool* pool) {
  const PoolFormat format{.flip = static_cast<uint8_t>(params.type == ByteType::kInt8 ? 0x80 : 0),
                          .min = params.clamp.min,
                          .max = params.clamp.max};
  ForEachWindow(params, input, output, pool, [&](const ByteWindow& window, uint8_t* to) {
    if (params.kind == PoolKind::kMax) {
      loops.greatest_of_window(window, format, params.channels, to);
    } else if (window.rows * window.columns <= kMaxCellsOfSum) {
      loops.average_of_window(window, format, params.channels, to);
    } else {
      AverageOf(window, params.clamp, params.channels, to,
                [=](uint8_t byte) { return (byte ^ format.flip) - format.flip; });
    }
  });
}

void Pool2DInt16(const Pool2DParams& params, const uint8_t* input, int16_t* output,
                 ThreadPool* pool) {
  PoolNumbers(params, params.clamp, input, output, pool);
}

void Pool2DFloat(const Pool2DParams& params, const ValueClamp<float>& clamp, const uint8_t* input,
                 float* output, ThreadPool* pool) {
  PoolNumbers(params, clamp, input, output, pool);
}

}  // namespace atollrt
