// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/conv_shape.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {

LineRange InputLinesOf(const ConvShape& s, LineRange output) {
  const int64_t first = int64_t{output.first} * s.stride_h - s.pad_top;
  const int64_t end =
      int64_t{output.end - 1} * s.stride_h - s.pad_top + int64_t{s.kernel_h - 1} * s.dilation_h + 1;
  const int64_t last = s.input_h;
  return {static_cast<int32_t>(std::clamp<int64_t>(first, 0, last)),
          static_cast<int32_t>(std::clamp<int64_t>(end, 0, last))};
}

namespace {

// Cells from the first tap of a filter to its last one that cost nothing worth mentioning.
constexpr int64_t kFarCells = 1024;

struct Axis {
  int32_t input, output, kernel, stride, dilation, pad;
  bool operator==(const Axis&) const = default;
};

// What is kept of an axis: `zeros` taps (0 or 1) without weights, then `count` from `first` on.
struct NearAxis {
  Axis axis;
  int32_t zeros = 0, first = 0, count = 0;
};

NearAxis NearTaps(const Axis& axis) {
  const int64_t dilation = axis.dilation;
  if ((axis.kernel - 1) * dilation <= kFarCells) return {.axis = axis, .count = axis.kernel};
  // Tap k of output j is over cell j * stride - pad + k * dilation.
  const int64_t last = int64_t{std::max(axis.output - 1, 0)} * axis.stride;
  const int64_t first = std::min<int64_t>(
      axis.kernel, DivideRoundingUp<int64_t>(std::max<int64_t>(axis.pad - last, 0), dilation));
  const int64_t end = std::clamp<int64_t>(
      DivideRoundingUp<int64_t>(int64_t{axis.input} + axis.pad, dilation), first, axis.kernel);
  NearAxis near{.axis = axis, .zeros = 0, .first = int32_t(first), .count = int32_t(end - first)};
  const int64_t start = first * dilation - axis.pad;  // the cell of the first output's first tap
  if (near.count == 0) {
    near.zeros = near.axis.dilation = 1;
    near.axis.pad = 0;
  } else if (start > 0) {
    // No padding is negative: a tap of zeros stands before it.
    near.zeros = 1;
    if (near.count == 1) near.axis.dilation = static_cast<int32_t>(start);
    near.axis.pad = near.count == 1 ? 0 : static_cast<int32_t>(dilation - start);
  } else {
    if (near.count == 1) near.axis.dilation = 1;
    near.axis.pad = static_cast<int32_t>(-start);
  }
  near.axis.kernel = near.zeros + near.count;
  return near;
}

}  // namespace

std::optional<NearFilter> WithoutFarTaps(const ConvShape& s, FilterKind kind,
                                         const uint8_t* weights, int32_t weight_zero_point) {
  const Axis height{s.input_h, s.output_h, s.kernel_h, s.stride_h, s.dilation_h, s.pad_top};
  const Axis width{s.input_w, s.output_w, s.kernel_w, s.stride_w, s.dilation_w, s.pad_left};
  const NearAxis rows = NearTaps(height);
  const NearAxis columns = NearTaps(width);
  if (rows.axis == height && columns.axis == width) return std::nullopt;
  NearFilter near{.shape = s, .weights = {}};
  near.shape.kernel_h = rows.axis.kernel;
  near.shape.kernel_w = columns.axis.kernel;
  near.shape.dilation_h = rows.axis.dilation;
  near.shape.dilation_w = columns.axis.dilation;
  near.shape.pad_top = rows.axis.pad;
  near.shape.pad_left = columns.axis.pad;
  const bool is_conv = kind == FilterKind::kConv;
  const int64_t filters = is_conv ? s.output_c : 1;
  const int64_t cell = is_conv ? s.input_c / s.groups : s.output_c;
  const int64_t line = rows.axis.kernel * int64_t{columns.axis.kernel} * cell;
  near.weights.assign(static_cast<size_t>(filters * line), static_cast<uint8_t>(weight_zero_point));
  if (columns.count == 0) return near;
  for (int64_t filter = 0; filter < filters; ++filter) {
    for (int64_t y = 0; y < rows.count; ++y) {
      const int64_t from = (filter * s.kernel_h + rows.first + y) * s.kernel_w + columns.first;
      const int64_t to =
          (filter * rows.axis.kernel + rows.zeros + y) * columns.axis.kernel + columns.zeros;
      std::memcpy(near.weights.data() + to * cell, weights + from * cell,
                  static_cast<size_t>(columns.count * cell));
    }
  }
  return near;
}

}  // namespace atollrt
