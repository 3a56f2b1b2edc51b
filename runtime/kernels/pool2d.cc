// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/pool2d.h"

#include <algorithm>

namespace atollrt {
namespace {

// Channels are taken in blocks whose running values stay in the first-level cache.
constexpr int32_t kBlock = 256;

// The part of one window that lies inside the image: cells [y0, y1) x [x0, x1).
struct Window {
  int64_t y0, y1, x0, x1;
};

template <typename Byte>
void MaxOfWindow(const Pool2DParams& p, const Window& w, const Byte* image, int32_t count,
                 Byte* output) {
  Byte best[kBlock];
  std::fill_n(best, count, static_cast<Byte>(ByteMin(p.type)));
  for (int64_t y = w.y0; y < w.y1; ++y) {
    for (int64_t x = w.x0; x < w.x1; ++x) {
      const Byte* cell = image + (y * p.input_w + x) * p.channels;
      for (int32_t c = 0; c < count; ++c) best[c] = std::max(best[c], cell[c]);
    }
  }
  for (int32_t c = 0; c < count; ++c) {
    output[c] = static_cast<Byte>(Clamp(best[c], p.clamp.min, p.clamp.max));
  }
}

template <typename Byte>
void AverageOfWindow(const Pool2DParams& p, const Window& w, const Byte* image, int32_t count,
                     Byte* output) {
  uint32_t sums[kBlock] = {};  // unsigned: sums of windows beyond 2^23 cells wrap
  for (int64_t y = w.y0; y < w.y1; ++y) {
    for (int64_t x = w.x0; x < w.x1; ++x) {
      const Byte* cell = image + (y * p.input_w + x) * p.channels;
      for (int32_t c = 0; c < count; ++c) sums[c] += static_cast<uint32_t>(cell[c]);
    }
  }
  // The integer division is done in double, which has vector instructions, and is exact: both
  // operands are integers below 2^53, and a quotient q that is no integer lies at least 1/n below
  // the next one, which is 2^-33 of q, far more than its rounding error.
  const int64_t n = (w.y1 - w.y0) * (w.x1 - w.x0);
  const double divisor = static_cast<double>(n);
  const double half = static_cast<double>(n / 2);
  for (int32_t c = 0; c < count; ++c) {
    const int32_t sum = static_cast<int32_t>(sums[c]);
    const double rounded = sum > 0 ? sum + half : sum - half;
    output[c] =
        static_cast<Byte>(Clamp(static_cast<int32_t>(rounded / divisor), p.clamp.min, p.clamp.max));
  }
}

template <typename Byte>
void PoolImages(const Pool2DParams& p, const Byte* input, Byte* output) {
  const int64_t image_bytes = int64_t{p.input_h} * p.input_w * p.channels;
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
          if (p.kind == PoolKind::kMax) {
            MaxOfWindow(p, window, input + c, count, output + c);
          } else {
            AverageOfWindow(p, window, input + c, count, output + c);
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
    PoolImages<uint8_t>(params, input, output);
  } else {
    PoolImages<int8_t>(params, reinterpret_cast<const int8_t*>(input),
                       reinterpret_cast<int8_t*>(output));
  }
}

}  // namespace atollrt
