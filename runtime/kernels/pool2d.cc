// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/pool2d.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "runtime/base/bytes.h"
#include "runtime/kernels/parallel_ranges.h"

namespace atollrt {
namespace {

// Channels are taken in blocks whose running values stay in the first-level cache.
constexpr int32_t kBlock = 256;

// The part of one window that lies inside the image: cells [y0, y1) x [x0, x1).
struct Window {
  int64_t y0, y1, x0, x1;
};

// Element `i` of a possibly unaligned tensor.
template <typename T>
T Element(const uint8_t* elements, int64_t i) {
  return LoadLittleEndian<T>(elements + i * static_cast<int64_t>(sizeof(T)));
}

template <typename T>
T ClampTo(T value, ClampRange range) {
  return static_cast<T>(Clamp(value, range.min, range.max));
}
float ClampTo(float value, const ValueClamp<float>& clamp) { return clamp(value); }

template <typename T, typename Range>
void MaxOfWindow(const Pool2DParams& p, const Range& range, const Window& w, const uint8_t* image,
                 int32_t count, T* output) {
  T best[kBlock];
  std::fill_n(best, count, std::numeric_limits<T>::lowest());
  for (int64_t y = w.y0; y < w.y1; ++y) {
    for (int64_t x = w.x0; x < w.x1; ++x) {
      const int64_t cell = (y * p.input_w + x) * p.channels;
      for (int32_t c = 0; c < count; ++c) best[c] = std::max(best[c], Element<T>(image, cell + c));
    }
  }
  for (int32_t c = 0; c < count; ++c) output[c] = ClampTo(best[c], range);
}

template <typename T>
void DivideSums(const uint32_t* sums, int64_t n, ClampRange range, int32_t count, T* output) {
  // The integer division is done in double, which has vector instructions, and is exact: both
  // operands are integers below 2^53, and a quotient q that is no integer lies at least 1/n below
  // the next one, which is 2^-33 of q, far more than its rounding error.
  const double divisor = static_cast<double>(n);
  const double half = static_cast<double>(n / 2);
  for (int32_t c = 0; c < count; ++c) {
    const int32_t sum = static_cast<int32_t>(sums[c]);
    const double rounded = sum > 0 ? sum + half : sum - half;
    output[c] =
        static_cast<T>(Clamp(static_cast<int32_t>(rounded / divisor), range.min, range.max));
  }
}

void DivideSums(const float* sums, int64_t n, const ValueClamp<float>& range, int32_t count,
                float* output) {
  const float divisor = static_cast<float>(n);
  for (int32_t c = 0; c < count; ++c) output[c] = range(sums[c] / divisor);
}

// Windows of so many bytes have sums of 16 bits.
constexpr int64_t kSmallWindow = 256;

// The mean of a small window of bytes. The division is a multiplication by m = floor(2^32 / n) + 1,
// which is 2^32 / n + e / n with 0 < e <= n: the quotient of x < 2^16 is too large by less than
// x e / (n 2^32) < 1 / n, so never by a whole one.
template <typename T>
void AverageOfSmallWindow(const Pool2DParams& p, const ClampRange& range, const Window& w,
                          const uint8_t* image, int32_t count, T* output) {
  using Sum = std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>;
  Sum sums[kBlock];
  std::fill_n(sums, count, Sum{0});
  for (int64_t y = w.y0; y < w.y1; ++y) {
    for (int64_t x = w.x0; x < w.x1; ++x) {
      const uint8_t* cell = image + (y * p.input_w + x) * p.channels;
      for (int32_t c = 0; c < count; ++c) {
        sums[c] = static_cast<Sum>(sums[c] + static_cast<T>(cell[c]));
      }
    }
  }
  const int64_t n = (w.y1 - w.y0) * (w.x1 - w.x0);
  const uint64_t multiplier = (uint64_t{1} << 32) / static_cast<uint64_t>(n) + 1;
  const int32_t half = static_cast<int32_t>(n / 2);
  for (int32_t c = 0; c < count; ++c) {
    const int32_t sum = sums[c];
    const uint32_t magnitude = static_cast<uint32_t>((sum < 0 ? -sum : sum) + half);
    const int32_t quotient = static_cast<int32_t>((magnitude * multiplier) >> 32);
    output[c] = static_cast<T>(Clamp(sum < 0 ? -quotient : quotient, range.min, range.max));
  }
}

template <typename T, typename Range>
void AverageOfWindow(const Pool2DParams& p, const Range& range, const Window& w,
                     const uint8_t* image, int32_t count, T* output) {
  if constexpr (sizeof(T) == 1) {
    if ((w.y1 - w.y0) * (w.x1 - w.x0) <= kSmallWindow) {
      return AverageOfSmallWindow(p, range, w, image, count, output);
    }
  }
  // Unsigned: sums of integers beyond the limits of the header wrap.
  using Sum = std::conditional_t<std::is_integral_v<T>, uint32_t, float>;
  Sum sums[kBlock];
  std::fill_n(sums, count, Sum{0});
  for (int64_t y = w.y0; y < w.y1; ++y) {
    for (int64_t x = w.x0; x < w.x1; ++x) {
      const int64_t cell = (y * p.input_w + x) * p.channels;
      for (int32_t c = 0; c < count; ++c) sums[c] += static_cast<Sum>(Element<T>(image, cell + c));
    }
  }
  DivideSums(sums, (w.y1 - w.y0) * (w.x1 - w.x0), range, count, output);
}

// Row `line` of the output, counted through all images.
template <typename T, typename Range>
void PoolLine(const Pool2DParams& p, const Range& range, int64_t line, const uint8_t* input,
              T* output) {
  const int64_t image_bytes =
      int64_t{p.input_h} * p.input_w * p.channels * static_cast<int64_t>(sizeof(T));
  const uint8_t* image = input + line / p.output_h * image_bytes;
  output += line * p.output_w * p.channels;
  const int64_t top = line % p.output_h * p.stride_h - p.pad_top;
  for (int32_t x = 0; x < p.output_w; ++x, output += p.channels) {
    const int64_t left = int64_t{x} * p.stride_w - p.pad_left;
    const Window window{.y0 = std::max<int64_t>(top, 0),
                        .y1 = std::min<int64_t>(top + p.kernel_h, p.input_h),
                        .x0 = std::max<int64_t>(left, 0),
                        .x1 = std::min<int64_t>(left + p.kernel_w, p.input_w)};
    for (int32_t c = 0; c < p.channels; c += kBlock) {
      const int32_t count = std::min(kBlock, p.channels - c);
      const uint8_t* first = image + int64_t{c} * static_cast<int64_t>(sizeof(T));
      if (p.kind == PoolKind::kMax) {
        MaxOfWindow(p, range, window, first, count, output + c);
      } else {
        AverageOfWindow(p, range, window, first, count, output + c);
      }
    }
  }
}

template <typename T, typename Range>
void PoolImages(const Pool2DParams& p, const Range& range, const uint8_t* input, T* output,
                ThreadPool* pool) {
  // Elements read for one row; sizes may be huge, their windows hardly all at once.
  const double work = static_cast<double>(p.output_w) * p.channels *
                      std::min(p.kernel_h, p.input_h) * std::min(p.kernel_w, p.input_w);
  const int64_t grain =
      work >= static_cast<double>(kParallelGrain) ? 1 : kParallelGrain / static_cast<int64_t>(work);
  ParallelRanges(pool, int64_t{p.batch} * p.output_h, grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) PoolLine(p, range, line, input, output);
  });
}

}  // namespace

void Pool2D(const Pool2DParams& params, const uint8_t* input, uint8_t* output, ThreadPool* pool) {
  if (params.type == ByteType::kUInt8) {
    PoolImages(params, params.clamp, input, output, pool);
  } else {
    PoolImages(params, params.clamp, input, reinterpret_cast<int8_t*>(output), pool);
  }
}

void Pool2DInt16(const Pool2DParams& params, const uint8_t* input, int16_t* output,
                 ThreadPool* pool) {
  PoolImages(params, params.clamp, input, output, pool);
}

void Pool2DFloat(const Pool2DParams& params, const ValueClamp<float>& clamp, const uint8_t* input,
                 float* output, ThreadPool* pool) {
  PoolImages(params, clamp, input, output, pool);
}

}  // namespace atollrt
