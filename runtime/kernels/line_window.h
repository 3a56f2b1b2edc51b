// SPDX-License-Identifier: Apache-2.0
//
// Computing an image line by line: some neighbouring lines of a tensor [h, w, c], of which the
// others need not exist, yet or any more.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/kernels/conv_shape.h"

namespace atollrt {

// Lines [first, end).
struct LineRange {
  int32_t first = 0;
  int32_t end = 0;
};

struct LineWindow {
  const uint8_t* data = nullptr;  // of line lines.first
  const uint8_t* end = nullptr;   // nothing at or past this is read
  LineRange lines;
};

// The lines of the input of a convolution that lines `output` depend on, of one image.
inline LineRange InputLinesOf(const ConvShape& s, LineRange output) {
  const int64_t first = int64_t{output.first} * s.stride_h - s.pad_top;
  const int64_t end =
      int64_t{output.end - 1} * s.stride_h - s.pad_top + int64_t{s.kernel_h - 1} * s.dilation_h + 1;
  const int64_t last = s.input_h;
  return {static_cast<int32_t>(std::clamp<int64_t>(first, 0, last)),
          static_cast<int32_t>(std::clamp<int64_t>(end, 0, last))};
}

}  // namespace atollrt
