// SPDX-License-Identifier: Apache-2.0
//
// The input cells under a filter as rows of a matrix. Activations may be unaligned.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/kernels/conv_shape.h"

namespace atollrt {

inline int64_t OutputPixels(const ConvShape& s) {
  return int64_t{s.batch} * s.output_h * s.output_w;
}
// Elements of one output channel's filter.
inline int64_t FilterDepth(const ConvShape& s) {
  return int64_t{s.kernel_h} * s.kernel_w * (s.input_c / s.groups);
}

// Calls tap(ky, kx, cell) for every tap of output pixel `pixel` (counted through the batch), with
// the index of the input cell's first element, or -1 outside the image.
template <typename Function>
void ForEachTap(const ConvShape& s, int64_t pixel, Function tap) {
  const int64_t x = pixel % s.output_w;
  const int64_t y = pixel / s.output_w % s.output_h;
  const int64_t image = pixel / s.output_w / s.output_h * s.input_h;
  for (int32_t ky = 0; ky < s.kernel_h; ++ky) {
    const int64_t in_y = y * s.stride_h - s.pad_top + int64_t{ky} * s.dilation_h;
    for (int32_t kx = 0; kx < s.kernel_w; ++kx) {
      const int64_t in_x = x * s.stride_w - s.pad_left + int64_t{kx} * s.dilation_w;
      const bool inside = in_y >= 0 && in_y < s.input_h && in_x >= 0 && in_x < s.input_w;
      tap(ky, kx, inside ? ((image + in_y) * s.input_w + in_x) * s.input_c : int64_t{-1});
    }
  }
}

// The FilterDepth(s) elements of type T under the filter, in the order of its weights.
template <typename T>
void GatherPatch(const ConvShape& s, const uint8_t* input, int32_t group, int64_t pixel, T* patch) {
  const int64_t count = s.input_c / s.groups;
  ForEachTap(s, pixel, [&](int32_t, int32_t, int64_t cell) {
    if (cell < 0) {
      std::fill_n(patch, count, T{0});
    } else {
      std::memcpy(patch, input + (cell + group * count) * static_cast<int64_t>(sizeof(T)),
                  static_cast<size_t>(count) * sizeof(T));
    }
    patch += count;
  });
}

}  // namespace atollrt
