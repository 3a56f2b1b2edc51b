// SPDX-License-Identifier: Apache-2.0
//
// The convolutions of bytes as their formulas have them: oracles of the kernels, and what computes
// shapes that these do not take. No tricks.
#include <algorithm>

#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/depthwise/depthwise_conv2d.h"
#include "runtime/kernels/transpose_conv.h"

namespace atollrt {
namespace {

// for_each_tap(y, x, tap) calls tap(ky, kx, in_y, in_x) for the taps of output pixel (y, x) that
// lie inside the image.
template <typename ForEachTap>
void Convolve(const Conv2DParams& params, FilterKind kind, const ForEachTap& for_each_tap,
              const uint8_t* input, uint8_t* output) {
  const ConvShape& s = params.shape;
  const bool is_depthwise = kind == FilterKind::kDepthwise;
  const int32_t groups = is_depthwise ? s.input_c : s.groups;
  const int32_t group_in = s.input_c / groups;
  const int32_t group_out = s.output_c / groups;
  const int64_t taps = int64_t{s.kernel_h} * s.kernel_w;
  const auto sum_of = [&](int32_t n, int32_t y, int32_t x, int32_t o) {
    uint32_t sum = 0;
    for_each_tap(y, x, [&](int64_t ky, int64_t kx, int64_t in_y, int64_t in_x) {
      const uint8_t* cell = input +
                            ((n * int64_t{s.input_h} + in_y) * s.input_w + in_x) * s.input_c +
                            o / group_out * group_in;
      const int64_t tap = ky * s.kernel_w + kx;
      const uint8_t* weight =
          params.weights + (is_depthwise ? tap * s.output_c + o : (o * taps + tap) * group_in);
      for (int32_t c = 0; c < group_in; ++c) {
        sum += static_cast<uint32_t>(
            (ByteValue(cell[c], params.input_type) - params.input_zero_point) *
            (ByteValue(weight[c], params.weight_type) - params.weight_zero_point));
      }
    });
    return static_cast<int32_t>(sum);
  };
  const OutputStage& stage = params.output;
  for (int32_t n = 0; n < s.batch; ++n) {
    for (int32_t y = 0; y < s.output_h; ++y) {
      for (int32_t x = 0; x < s.output_w; ++x) {
        for (int32_t o = 0; o < s.output_c; ++o) {
          *output++ = static_cast<uint8_t>(Requantize(
              sum_of(n, y, x, o), stage.mode, stage.channels[o], stage.zero_point, stage.clamp));
        }
      }
    }
  }
}

void ConvolveForwards(const Conv2DParams& params, FilterKind kind, const uint8_t* input,
                      uint8_t* output) {
  const ConvShape& s = params.shape;
  const auto for_each_tap = [&](int32_t y, int32_t x, const auto& tap) {
    for (int32_t ky = 0; ky < s.kernel_h; ++ky) {
      const int64_t in_y = int64_t{y} * s.stride_h - s.pad_top + int64_t{ky} * s.dilation_h;
      if (in_y < 0 || in_y >= s.input_h) continue;
      for (int32_t kx = 0; kx < s.kernel_w; ++kx) {
        const int64_t in_x = int64_t{x} * s.stride_w - s.pad_left + int64_t{kx} * s.dilation_w;
        if (in_x >= 0 && in_x < s.input_w) tap(ky, kx, in_y, in_x);
      }
    }
  };
  Convolve(params, kind, for_each_tap, input, output);
}

// The taps of one axis of a transposed convolution that bring something to an output: every
// `stride`-th.
struct TapRange {
  int64_t first = 0, end = 0;
};
TapRange TapsOf(int64_t position, int32_t input, int32_t kernel, int32_t stride) {
  return {std::max(position % stride, position - (input - int64_t{1}) * stride),
          std::min<int64_t>(kernel, position + 1)};
}

}  // namespace

void ReferenceConv2D(const Conv2DParams& params, const uint8_t* input, uint8_t* output) {
  ConvolveForwards(params, FilterKind::kConv, input, output);
}

void ReferenceDepthwiseConv2D(const DepthwiseConv2DParams& params, const uint8_t* input,
                              uint8_t* output) {
  ConvolveForwards(params, FilterKind::kDepthwise, input, output);
}

void ReferenceTransposeConv(const Conv2DParams& params, const uint8_t* input, uint8_t* output) {
  const ConvShape& s = params.shape;
  const auto for_each_tap = [&](int32_t y, int32_t x, const auto& tap) {
    const int64_t below = int64_t{y} + s.pad_top;
    const int64_t beside = int64_t{x} + s.pad_left;
    const TapRange rows = TapsOf(below, s.input_h, s.kernel_h, s.stride_h);
    const TapRange columns = TapsOf(beside, s.input_w, s.kernel_w, s.stride_w);
    for (int64_t ky = rows.first; ky < rows.end; ky += s.stride_h) {
      for (int64_t kx = columns.first; kx < columns.end; kx += s.stride_w) {
        tap(ky, kx, (below - ky) / s.stride_h, (beside - kx) / s.stride_w);
      }
    }
  };
  Convolve(params, FilterKind::kConv, for_each_tap, input, output);
}

}  // namespace atollrt
