// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/patches.h"

#include <algorithm>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// The x in [0, limit] from which on x * stride + offset >= bound.
int32_t FirstAtLeast(int64_t bound, int64_t offset, int64_t stride, int32_t limit) {
  const int64_t distance = bound - offset;
  const int64_t x = distance <= 0 ? 0 : DivideRoundingUp(distance, stride);
  return static_cast<int32_t>(std::min<int64_t>(x, limit));
}

}  // namespace

Patches::Patches(const ConvShape& shape, ByteType type, const GemmKernel* kernel,
                 const uint8_t* pad_row)
    : shape_(shape), type_(type), kernel_(kernel), pad_row_(pad_row) {
  const ConvShape& s = shape_;
  group_channels_ = s.input_c / s.groups;
  depth_ = int64_t{s.kernel_h} * s.kernel_w * group_channels_;
  is_whole_pixels_ = s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 &&
                     s.pad_top == 0 && s.pad_left == 0 && s.output_h == s.input_h &&
                     s.output_w == s.input_w;
  const int64_t padded = PaddedDepth(*kernel, depth_);
  // Rows a multiple of a page apart compete for the same few lines of L1.
  is_packed_ = is_whole_pixels_ && s.groups == 1 && padded == depth_ &&
               depth_ * kernel->lhs_element_bytes % 2048 != 0;
  row_stride_ = padded * kernel->lhs_element_bytes;
  if (!is_packed_) row_stride_ = static_cast<int64_t>(AlignUp(row_stride_ + kLhsSlack, 64));
  taps_touch_ = s.kernel_w == 1 || (s.dilation_w == 1 && s.groups == 1);
  interior_begin_ = FirstAtLeast(0, -s.pad_left, s.stride_w, s.output_w);
  const int64_t last_tap = int64_t{s.kernel_w - 1} * s.dilation_w - s.pad_left;
  interior_end_ =
      std::max(interior_begin_, FirstAtLeast(s.input_w, last_tap, s.stride_w, s.output_w));
}

void Patches::Copy(const uint8_t* input, int32_t group, int64_t first, int32_t rows,
                   uint8_t* block) const {
  const ConvShape& s = shape_;
  const uint8_t* const input_end = input + s.InputBytes();
  const uint8_t* const channels = input + group * group_channels_;
  if (is_whole_pixels_) {
    kernel_->copy_lhs({.source = channels + first * s.input_c,
                       .source_stride = s.input_c,
                       .source_end = input_end,
                       .target = block,
                       .target_stride = row_stride_,
                       .count = is_packed_ ? rows * depth_ : depth_,
                       .rows = is_packed_ ? 1 : rows,
                       .type = type_});
    return;
  }
  const int64_t image_bytes = int64_t{s.input_h} * s.input_w * s.input_c;
  while (rows > 0) {
    const int64_t line = first / s.output_w;
    const int32_t x = static_cast<int32_t>(first % s.output_w);
    const int32_t count = std::min(rows, s.output_w - x);
    CopySegment({.image = channels + line / s.output_h * image_bytes,
                 .input_end = input_end,
                 .y = static_cast<int32_t>(line % s.output_h),
                 .x_begin = x,
                 .x_end = x + count,
                 .target = block});
    first += count;
    rows -= count;
    block += count * row_stride_;
  }
}

void Patches::CopySegment(const Segment& segment) const {
  if (!taps_touch_) {
    CopyTaps(segment);
    return;
  }
  const int32_t begin = std::clamp(interior_begin_, segment.x_begin, segment.x_end);
  const int32_t end = std::clamp(interior_end_, begin, segment.x_end);
  const auto part = [&](int32_t x_begin, int32_t x_end) {
    Segment result = segment;
    result.x_begin = x_begin;
    result.x_end = x_end;
    result.target += (x_begin - segment.x_begin) * row_stride_;
    return result;
  };
  if (segment.x_begin < begin) CopyTaps(part(segment.x_begin, begin));
  if (begin < end) CopyInterior(part(begin, end));
  if (end < segment.x_end) CopyTaps(part(end, segment.x_end));
}

// Whole kernel rows at a time.
void Patches::CopyInterior(const Segment& segment) const {
  const int64_t count = shape_.kernel_w * group_channels_;
  for (int32_t ky = 0; ky < shape_.kernel_h; ++ky) CopyRun(segment, ky, 0, count);
}

// Tap by tap; each is inside the image for a range of x, and outside before and after.
void Patches::CopyTaps(const Segment& segment) const {
  const ConvShape& s = shape_;
  for (int32_t ky = 0; ky < s.kernel_h; ++ky) {
    for (int32_t kx = 0; kx < s.kernel_w; ++kx) {
      const int64_t offset = int64_t{kx} * s.dilation_w - s.pad_left;
      const int32_t begin = std::clamp(FirstAtLeast(0, offset, s.stride_w, s.output_w),
                                       segment.x_begin, segment.x_end);
      const int32_t end =
          std::clamp(FirstAtLeast(s.input_w, offset, s.stride_w, s.output_w), begin, segment.x_end);
      Segment part = segment;
      part.x_end = begin;
      Fill(part, ky, kx, group_channels_);
      part.target += (begin - segment.x_begin) * row_stride_;
      part.x_begin = begin;
      part.x_end = end;
      if (begin < end) CopyRun(part, ky, kx, group_channels_);
      part.target += (end - begin) * row_stride_;
      part.x_begin = end;
      part.x_end = segment.x_end;
      Fill(part, ky, kx, group_channels_);
    }
  }
}

// `count` activations from tap (ky, kx) on, for each pixel; the tap's column is inside the image.
void Patches::CopyRun(const Segment& segment, int32_t ky, int32_t kx, int64_t count) const {
  const ConvShape& s = shape_;
  const int64_t y = int64_t{segment.y} * s.stride_h - s.pad_top + int64_t{ky} * s.dilation_h;
  if (y < 0 || y >= s.input_h) {
    Fill(segment, ky, kx, count);
    return;
  }
  const int64_t x = int64_t{segment.x_begin} * s.stride_w - s.pad_left + int64_t{kx} * s.dilation_w;
  const int64_t tap = (int64_t{ky} * s.kernel_w + kx) * group_channels_;
  kernel_->copy_lhs({.source = segment.image + (y * s.input_w + x) * s.input_c,
                     .source_stride = int64_t{s.stride_w} * s.input_c,
                     .source_end = segment.input_end,
                     .target = segment.target + tap * kernel_->lhs_element_bytes,
                     .target_stride = row_stride_,
                     .count = count,
                     .rows = segment.x_end - segment.x_begin,
                     .type = type_});
}

void Patches::Fill(const Segment& segment, int32_t ky, int32_t kx, int64_t count) const {
  if (segment.x_begin == segment.x_end) return;
  const int64_t tap = (int64_t{ky} * shape_.kernel_w + kx) * group_channels_;
  kernel_->copy_lhs({.source = pad_row_,
                     .source_stride = 0,
                     .source_end = pad_row_ + shape_.kernel_w * group_channels_,
                     .target = segment.target + tap * kernel_->lhs_element_bytes,
                     .target_stride = row_stride_,
                     .count = count,
                     .rows = segment.x_end - segment.x_begin,
                     .type = type_});
}

}  // namespace atollrt
