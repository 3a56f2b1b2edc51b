// SPDX-License-Identifier: Apache-2.0
//
// The sums of products of filters over int16 or float32 images, by their definitions: the oracle
// of the kernels of these types. int16 x int8 sums are exact in int64, float ones nearly in double.
#pragma once

#include <vector>

#include "runtime/kernels/conv_shape.h"
#include "tests/support/rng.h"

namespace atollrt {

// [batch, output_h, output_w, output_c] sums; weights as Conv2DInt16Params has them.
template <typename Sum, typename X, typename W>
std::vector<Sum> FilterSums(const ConvShape& s, FilterKind kind, const std::vector<X>& input,
                            const std::vector<W>& weights) {
  std::vector<Sum> sums;
  const int group_in = s.input_c / s.groups;
  for (int n = 0; n < s.batch; ++n) {
    for (int y = 0; y < s.output_h; ++y) {
      for (int x = 0; x < s.output_w; ++x) {
        for (int o = 0; o < s.output_c; ++o) {
          Sum sum = 0;
          for (int ky = 0; ky < s.kernel_h; ++ky) {
            for (int kx = 0; kx < s.kernel_w; ++kx) {
              const int iy = y * s.stride_h - s.pad_top + ky * s.dilation_h;
              const int ix = x * s.stride_w - s.pad_left + kx * s.dilation_w;
              if (iy < 0 || iy >= s.input_h || ix < 0 || ix >= s.input_w) continue;
              const X* cell = &input[((n * s.input_h + iy) * s.input_w + ix) * s.input_c];
              if (kind == FilterKind::kDepthwise) {
                const int channel = o / (s.output_c / s.input_c);
                sum += Sum(cell[channel]) * Sum(weights[(ky * s.kernel_w + kx) * s.output_c + o]);
                continue;
              }
              const int first = o / (s.output_c / s.groups) * group_in;
              for (int c = 0; c < group_in; ++c) {
                const int tap = (o * s.kernel_h + ky) * s.kernel_w + kx;
                sum += Sum(cell[first + c]) * Sum(weights[tap * group_in + c]);
              }
            }
          }
          sums.push_back(sum);
        }
      }
    }
  }
  return sums;
}

// The formula of transpose_conv.h, as it scatters.
template <typename Sum, typename X, typename W>
std::vector<Sum> TransposeConvSums(const ConvShape& s, const std::vector<X>& input,
                                   const std::vector<W>& weights) {
  std::vector<Sum> sums(static_cast<size_t>(s.OutputBytes()));
  for (int n = 0; n < s.batch; ++n) {
    for (int iy = 0; iy < s.input_h; ++iy) {
      for (int ix = 0; ix < s.input_w; ++ix) {
        for (int ky = 0; ky < s.kernel_h; ++ky) {
          for (int kx = 0; kx < s.kernel_w; ++kx) {
            const int oy = iy * s.stride_h - s.pad_top + ky;
            const int ox = ix * s.stride_w - s.pad_left + kx;
            if (oy < 0 || oy >= s.output_h || ox < 0 || ox >= s.output_w) continue;
            for (int o = 0; o < s.output_c; ++o) {
              for (int c = 0; c < s.input_c; ++c) {
                sums[((n * s.output_h + oy) * s.output_w + ox) * s.output_c + o] +=
                    Sum(input[((n * s.input_h + iy) * s.input_w + ix) * s.input_c + c]) *
                    Sum(weights[((o * s.kernel_h + ky) * s.kernel_w + kx) * s.input_c + c]);
              }
            }
          }
        }
      }
    }
  }
  return sums;
}

// Random values; for integers the extremes are frequent.
inline std::vector<int16_t> RandomInt16(Rng* rng, int64_t count) {
  std::vector<int16_t> values(static_cast<size_t>(count));
  const bool extreme = rng->OneIn(4);
  for (int16_t& value : values) {
    value = extreme ? INT16_MIN : static_cast<int16_t>(rng->Int(INT16_MIN, INT16_MAX));
  }
  return values;
}
inline std::vector<int8_t> RandomInt8(Rng* rng, int64_t count) {
  std::vector<int8_t> values(static_cast<size_t>(count));
  const bool extreme = rng->OneIn(4);
  for (int8_t& value : values) value = extreme ? INT8_MIN : static_cast<int8_t>(rng->Next());
  return values;
}
inline std::vector<float> RandomFloats(Rng* rng, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(rng->Real() * 2 - 1);
  return values;
}

template <typename T>
const uint8_t* BytesOf(const std::vector<T>& values) {
  return reinterpret_cast<const uint8_t*>(values.data());
}
template <typename T>
uint8_t* BytesOf(std::vector<T>& values) {
  return reinterpret_cast<uint8_t*>(values.data());
}

}  // namespace atollrt
