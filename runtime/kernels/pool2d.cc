// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/pool2d.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "runtime/base/bytes.h"

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

template <typename T, typename Range>
void AverageOfWindow(const Pool2DParams& p, const Range& range, const Window& w,
                     const uint8_t* image, int32_t count, T* output) {
  // Unsigned: sums of integers beyond the limits of the header wrap.
  using Sum = std::conditional_t<std::is_integral_v<T>, uint32_t, float>;
  Sum sums[kBlock] = {};
  for (int64_t y = w.y0; y < w.y1; ++y) {
    for (int64_t x = w.x0; x < w.x1; ++x) {
      const int64_t cell = (y * p.input_w + x) * p.channels;
      for (int32_t c = 0; c < count; ++c) sums[c] += static_cast<Sum>(Element<T>(image, cell + c));
    }
  }
  DivideSums(sums, (w.y1 - w.y0) * (w.x1 - w.x0), range, count, output);
}

template <typename T, typename Range>
void PoolImages(const Pool2DParams& p, const Range& range, const uint8_t* input, T* output) {
  const int64_t image_bytes =
      int64_t{p.input_h} * p.input_w * p.channels * static_cast<int64_t>(sizeof(T));
  for (int32_t n = 0; n < p.batch; ++n, input += image_bytes) {
    for (int32_t y = 0; y < p.output_h; ++y) {
      const int64_t top = int64_t{y} * p.stride_h - p.pad_top;
      for (int32_t x = 0; x < p.output_w; ++x) {
        const int64_t left = int64_t{x} * p.stride_w - p.pad_left;
        const Window window{.y0 = std::max<int64_t>(top, 0),
                            .y1 = std::min<int64_t>(top + p.kernel_h, p.input_h),
                            .x0 = std::max<int64_t>(left, 0),
                            .x1 = std::min<int64_t>(left + p.kernel_w, p.input_w)};
        for (int32_t c = 0; c < p.channels; c += kBlock) {
          const int32_t count = std::min(kBlock, p.channels - c);
          const uint8_t* first = input + int64_t{c} * static_cast<int64_t>(sizeof(T));
          if (p.kind == PoolKind::kMax) {
            MaxOfWindow(p, range, window, first, count, output + c);
          } else {
            AverageOfWindow(p, range, window, first, count, output + c);
          }
        }
        output += p.channels;
      }
    }
  }
}

}  // namespace

void Pool2D(const Pool2DParams& params, const uint8_t* input, uint8_t* output) {
  if (params.type == ByteType::kUInt8) {
    PoolImages(params, params.clamp, input, output);
  } else {
    PoolImages(params, params.clamp, input, reinterpret_cast<int8_t*>(output));
  }
}

void Pool2DInt16(const Pool2DParams& params, const uint8_t* input, int16_t* output) {
  PoolImages(params, params.clamp, input, output);
}

void Pool2DFloat(const Pool2DParams& params, const ValueClamp<float>& clamp, const uint8_t* input,
                 float* output) {
  PoolImages(params, clamp, input, output);
}

}  // namespace atollrt
