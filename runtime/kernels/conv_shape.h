// SPDX-License-Identifier: Apache-2.0
//
// The geometry of a 2-D convolution or depthwise convolution over NHWC tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace atollrt {

// All sizes in elements and at least 1, except pads (>= 0; output_h and output_w may be 0).
// Cells read for output row y, tap t: y * stride_h - pad_top + t * dilation_h.
struct ConvShape {
  int32_t batch = 1;
  int32_t input_h = 1, input_w = 1, input_c = 1;
  int32_t output_h = 1, output_w = 1, output_c = 1;
  int32_t kernel_h = 1, kernel_w = 1;
  int32_t stride_h = 1, stride_w = 1;
  int32_t dilation_h = 1, dilation_w = 1;
  int32_t pad_top = 0, pad_left = 0;
  int32_t groups = 1;  // divides input_c and output_c

  int64_t InputBytes() const { return int64_t{batch} * input_h * input_w * input_c; }
  int64_t OutputBytes() const { return int64_t{batch} * output_h * output_w * output_c; }
  bool operator==(const ConvShape&) const = default;
};

// What an output channel reads: all channels of its group, or one (groups does not count).
enum class FilterKind : uint8_t { kConv, kDepthwise };

// ---- Line by line -------------------------------------------------------------------------------
//
// Some neighbouring lines of a tensor [h, w, c], of which the others need not exist, yet or any
// more.

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
LineRange InputLinesOf(const ConvShape& s, LineRange output);

// ---- Filters that are dilated far beyond their image --------------------------------------------
//
// Most of their taps read padding in every output, and contribute nothing; kernels that lay a line
// of activations out with its padding would have millions of cells for an image of one.

struct NearFilter {
  ConvShape shape;
  std::vector<uint8_t> weights;  // laid out as those of the whole filter
};

// The filter of bytes without such taps, which computes the same, or nullopt for one that ends near
// its image, as those of real models do. The `weights` of a convolution are
// [output_c, kernel_h, kernel_w, input_c / groups], of a depthwise one [kernel_h, kernel_w,
// output_c]. Lines of what is left, padding included, are at most a few times as long as those of
// input and output.
std::optional<NearFilter> WithoutFarTaps(const ConvShape& shape, FilterKind kind,
                                         const uint8_t* weights, int32_t weight_zero_point);

}  // namespace atollrt
