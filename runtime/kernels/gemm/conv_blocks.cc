// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/conv_blocks.h"

#include <algorithm>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// Rows that share L1 with a panel of weights, and not so many that the outputs of one panel would
// leave L1 before the next panel's join them.
constexpr int64_t kBlockBytes = 24 << 10;
constexpr int64_t kBlockTiles = 8;
// What the lines under one line of output may take before it is cut.
constexpr int64_t kLineBytes = 192 << 10;
// Rows a multiple of this apart compete for the same few lines of L1.
constexpr int64_t kAliasBytes = 2048;

// A convolution that maps pixels to pixels, one by one.
bool IsPointwise(const ConvShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 &&
         s.pad_top == 0 && s.pad_left == 0 && s.output_h == s.input_h && s.output_w == s.input_w;
}

// Whether no window leaves the image.
bool IsInside(const ConvShape& s) {
  const auto end = [](int32_t outputs, int32_t stride, int32_t kernel, int32_t dilation) {
    return int64_t{outputs - 1} * stride + int64_t{kernel - 1} * dilation + 1;
  };
  return s.pad_top == 0 && s.pad_left == 0 &&
         end(s.output_h, s.stride_h, s.kernel_h, s.dilation_h) <= s.input_h &&
         end(s.output_w, s.stride_w, s.kernel_w, s.dilation_w) <= s.input_w;
}

}  // namespace

ConvBlocks::ConvBlocks(const ConvShape& shape, ByteType type, const GemmKernel* kernel,
                       const uint8_t* pad_pixel)
    : shape_(shape), type_(type), kernel_(kernel), pad_pixel_(pad_pixel) {
  ConvShape& s = shape_;
  const int64_t pixels = int64_t{s.batch} * s.output_h * s.output_w;
  if (IsPointwise(s) && pixels <= INT32_MAX) {
    s.input_w = s.output_w = static_cast<int32_t>(pixels);
    s.input_h = s.output_h = s.batch = 1;
  }
  if (s.kernel_h == 1) s.dilation_h = 1;
  if (s.kernel_w == 1) s.dilation_w = 1;
  group_channels_ = s.input_c / s.groups;
  const bool in_row = s.dilation_w == 1;  // one segment per filter row
  segment_depth_ = in_row ? s.kernel_w * group_channels_ : group_channels_;
  const bool as_is =
      kernel->lhs_element_bytes == 1 &&
      (type == ByteType::kInt8 ? kernel->int8_lhs_offset : kernel->uint8_lhs_offset) == 0;
  in_place_ = as_is && IsInside(s) && segment_depth_ % kernel->k_group == 0 &&
              (s.groups == 1 || s.kernel_w == 1 || !in_row) &&
              int64_t{s.stride_w} * s.input_c % kAliasBytes != 0;
  if (in_place_) {
    pixel_bytes_ = s.input_c;
    line_bytes_ = s.input_w * pixel_bytes_;
  } else {
    if (s.kernel_h == 1) line_step_ = s.stride_h;
    if (s.dilation_h > 1) line_step_ = s.dilation_h;  // and blocks of one line
    if (s.kernel_w == 1) column_step_ = s.stride_w;
    pixel_bytes_ = group_channels_ * kernel->lhs_element_bytes;
    if (s.kernel_w == 1 && pixel_bytes_ % kAliasBytes == 0) pixel_bytes_ += kLhsSlack;
  }
  ChooseBlock();
  SetSegments();
}

// Columns and lines of a block's activations.
int64_t ConvBlocks::InputColumns(int64_t columns) const {
  const ConvShape& s = shape_;
  return (columns - 1) * (s.stride_w / column_step_) + int64_t{s.kernel_w - 1} * s.dilation_w + 1;
}
int64_t ConvBlocks::InputLines(int64_t lines) const {
  const ConvShape& s = shape_;
  if (!in_place_ && s.dilation_h > 1) return s.kernel_h;
  return (lines - 1) * (s.stride_h / line_step_) + int64_t{s.kernel_h - 1} * s.dilation_h + 1;
}

void ConvBlocks::ChooseBlock() {
  const ConvShape& s = shape_;
  if (s.output_w == 0 || s.output_h == 0) return;
  const int64_t tile = kernel_->tile_rows;
  // As many columns as there are, or as fit.
  const int64_t column_bytes = (s.stride_w / column_step_) * pixel_bytes_;
  const int64_t line_budget = (s.output_h == 1 ? kBlockBytes : kLineBytes) / InputLines(1);
  const int64_t tiles = std::max<int64_t>(line_budget / (tile * column_bytes), 1);
  const int64_t most = s.output_h == 1 ? std::min(tiles, kBlockTiles) : tiles;
  block_columns_ = static_cast<int32_t>(std::min<int64_t>(s.output_w, most * tile));
  if (!in_place_) line_bytes_ = InputColumns(block_columns_) * pixel_bytes_;
  block_lines_ = 1;
  while (s.dilation_h == 1 && block_lines_ < s.output_h &&
         block_lines_ * block_columns_ < kBlockTiles * tile &&
         InputLines(block_lines_ + 1) * line_bytes_ <= kBlockBytes) {
    ++block_lines_;
  }
  if (!in_place_) scratch_bytes_ = InputLines(block_lines_) * line_bytes_ + kLhsSlack;
}

void ConvBlocks::SetSegments() {
  const ConvShape& s = shape_;
  const int32_t taps = segment_depth_ == group_channels_ ? s.kernel_w : 1;
  const int32_t tap_lines = in_place_ ? s.dilation_h : 1;
  for (int32_t ky = 0; ky < s.kernel_h; ++ky) {
    for (int32_t kx = 0; kx < taps; ++kx) {
      segment_offsets_.push_back(int64_t{ky} * tap_lines * line_bytes_ +
                                 int64_t{kx} * s.dilation_w * pixel_bytes_);
    }
  }
}

ConvBlocks::Rows ConvBlocks::Get(const Input& input, int32_t group, const Block& block,
                                 uint8_t* scratch) const {
  const ConvShape& s = shape_;
  const int64_t input_line_bytes = int64_t{s.input_w} * s.input_c;
  const int64_t first_y = int64_t{block.line} * s.stride_h - s.pad_top;
  const auto line_at = [&](int64_t y) {
    return input.data + (block.image * s.input_h + y - input.first_line) * input_line_bytes +
           group * group_channels_;
  };
  if (in_place_) {
    return {.data = line_at(first_y) + int64_t{block.column} * s.stride_w * pixel_bytes_,
            .stride = s.stride_w * pixel_bytes_,
            .line_stride = s.stride_h * line_bytes_};
  }
  uint8_t* to = scratch;
  for (int64_t i = 0; i < InputLines(block.lines); ++i, to += line_bytes_) {
    const int64_t y = first_y + i * line_step_;
    CopyLine(y < 0 || y >= s.input_h ? nullptr : line_at(y), input.end, block, to);
  }
  return {.data = scratch,
          .stride = (s.stride_w / column_step_) * pixel_bytes_,
          .line_stride = s.dilation_h > 1 ? 0 : (s.stride_h / line_step_) * line_bytes_};
}

// One line of the image, from left to right: padding, activations, padding. nullptr stands for a
// line outside of it.
void ConvBlocks::CopyLine(const uint8_t* line, const uint8_t* input_end, const Block& block,
                          uint8_t* to) const {
  const ConvShape& s = shape_;
  const int64_t columns = InputColumns(block.columns);
  if (line == nullptr) {
    Fill(to, columns);
    return;
  }
  const int64_t x = int64_t{block.column} * s.stride_w - s.pad_left;
  // Columns [begin, end) are inside of the image.
  const int64_t begin =
      std::clamp<int64_t>(x >= 0 ? 0 : DivideRoundingUp<int64_t>(-x, column_step_), 0, columns);
  const int64_t end = std::clamp<int64_t>(
      x >= s.input_w ? 0 : DivideRoundingUp<int64_t>(s.input_w - x, column_step_), begin, columns);
  Fill(to, begin);
  CopyPixels(line + (x + begin * column_step_) * s.input_c, input_end, to + begin * pixel_bytes_,
             end - begin);
  Fill(to + end * pixel_bytes_, columns - end);
}

void ConvBlocks::CopyPixels(const uint8_t* from, const uint8_t* input_end, uint8_t* to,
                            int64_t pixels) const {
  if (pixels == 0) return;
  const bool touch = column_step_ == 1 && shape_.groups == 1 &&
                     pixel_bytes_ == group_channels_ * kernel_->lhs_element_bytes;
  kernel_->copy_lhs({.source = from,
                     .source_stride = int64_t{column_step_} * shape_.input_c,
                     .source_end = input_end,
                     .target = to,
                     .target_stride = pixel_bytes_,
                     .count = touch ? pixels * group_channels_ : group_channels_,
                     .rows = touch ? 1 : static_cast<int32_t>(pixels),
                     .type = type_});
}

void ConvBlocks::Fill(uint8_t* to, int64_t pixels) const {
  if (pixels == 0) return;
  kernel_->copy_lhs({.source = pad_pixel_,
                     .source_stride = 0,
                     .source_end = pad_pixel_ + group_channels_,
                     .target = to,
                     .target_stride = pixel_bytes_,
                     .count = group_channels_,
                     .rows = static_cast<int32_t>(pixels),
                     .type = type_});
}

}  // namespace atollrt
