// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/depthwise_conv2d.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {

void ReferenceDepthwiseConv2D(const DepthwiseConv2DParams& params, const uint8_t* input,
                              uint8_t* output) {
  const ConvShape& s = params.shape;
  const int32_t depth_multiplier = s.output_c / s.input_c;
  for (int32_t n = 0; n < s.batch; ++n) {
    for (int32_t y = 0; y < s.output_h; ++y) {
      for (int32_t x = 0; x < s.output_w; ++x) {
        for (int32_t o = 0; o < s.output_c; ++o) {
          const int32_t channel = o / depth_multiplier;
          uint32_t accumulator = 0;
          for (int32_t ky = 0; ky < s.kernel_h; ++ky) {
            const int64_t in_y = int64_t{y} * s.stride_h - s.pad_top + int64_t{ky} * s.dilation_h;
            if (in_y < 0 || in_y >= s.input_h) continue;
            for (int32_t kx = 0; kx < s.kernel_w; ++kx) {
              const int64_t in_x =
                  int64_t{x} * s.stride_w - s.pad_left + int64_t{kx} * s.dilation_w;
              if (in_x < 0 || in_x >= s.input_w) continue;
              const uint8_t cell =
                  input[((n * int64_t{s.input_h} + in_y) * s.input_w + in_x) * s.input_c + channel];
              const uint8_t weight =
                  params.weights[(int64_t{ky} * s.kernel_w + kx) * s.output_c + o];
              accumulator += static_cast<uint32_t>(
                  (ByteValue(cell, params.input_type) - params.input_zero_point) *
                  (ByteValue(weight, params.weight_type) - params.weight_zero_point));
            }
          }
          *output++ = static_cast<uint8_t>(
              Requantize(static_cast<int32_t>(accumulator), params.output.mode,
                         params.output.channels[o], params.output.zero_point, params.output.clamp));
        }
      }
    }
  }
}

Result<DepthwiseConv2D> DepthwiseConv2D::Prepare(const DepthwiseConv2DParams& params,
                                                 CpuFeatures features) {
  const ConvShape& s = params.shape;
  DepthwiseConv2D conv;
  conv.params_ = params;
  conv.params_.weights = nullptr;
  conv.params_.output.channels = {};
  conv.kernel_ = &ChooseDepthwise(features);
  conv.depth_multiplier_ = s.output_c / s.input_c;
  conv.row_groups_ = DivideRoundingUp(s.kernel_h, conv.kernel_->taps_per_cell);
  if (s.dilation_h == 1) {
    const int32_t unused = conv.row_groups_ * conv.kernel_->taps_per_cell - s.kernel_h;
    conv.unit_lines_ = 1 + unused / s.stride_h;
  }
  conv.cell_columns_ =
      std::max(s.output_w - 1, 0) * s.stride_w + (s.kernel_w - 1) * s.dilation_w + 1;

  // Units whose cells leave room in L1 for weights and outputs.
  constexpr int64_t kUnitBytes = 24 << 10;
  const int64_t block_bytes = int64_t{conv.row_groups_} * conv.cell_columns_ * kDepthwiseCellBytes;
  const int32_t blocks = DivideRoundingUp(s.output_c, kDepthwiseBlock);
  conv.slice_blocks_ =
      static_cast<int32_t>(std::clamp<int64_t>(kUnitBytes / block_bytes, 1, blocks));
  conv.slices_ = DivideRoundingUp(blocks, conv.slice_blocks_);

  for (int32_t line = 0; line < conv.unit_lines_; ++line) {
    for (int32_t row_group = 0; row_group < conv.row_groups_; ++row_group) {
      uint32_t ones = 0;
      for (int32_t t = 0; t < conv.kernel_->taps_per_cell; ++t) {
        const int32_t ky = row_group * conv.kernel_->taps_per_cell + t - line * s.stride_h;
        if (ky >= 0 && ky < s.kernel_h) ones |= 1u << (8 * t);
      }
      conv.ones_.insert(conv.ones_.end(), static_cast<size_t>(s.kernel_w), ones);
    }
  }
  for (int32_t row_group = 0; row_group < conv.row_groups_; ++row_group) {
    for (int32_t kx = 0; kx < s.kernel_w; ++kx) {
      conv.offsets_.push_back((int64_t{row_group} * conv.cell_columns_ + kx * s.dilation_w) *
                              kDepthwiseCellBytes);
    }
  }
  ATOLL_RETURN_IF_ERROR(conv.Pack(params));
  return conv;
}

size_t DepthwiseConv2D::WeightBytes(int32_t blocks) const {
  return static_cast<size_t>(blocks) * offsets_.size() * kDepthwiseCellBytes;
}

Status DepthwiseConv2D::Pack(const DepthwiseConv2DParams& params) {
  const ConvShape& s = params.shape;
  const int32_t blocks = DivideRoundingUp(s.output_c, kDepthwiseBlock);
  const size_t weight_bytes = static_cast<size_t>(unit_lines_) * WeightBytes(blocks);
  const size_t columns_bytes = AlignUp(OutputColumns::Bytes(s.output_c), Buffer::kAlignment);
  const size_t pad_bytes = static_cast<size_t>(blocks) * kDepthwiseBlock;
  ATOLL_ASSIGN_OR_RETURN(packed_, Buffer::Allocate(weight_bytes + columns_bytes + pad_bytes));
  columns_ = OutputColumns::In(packed_.data() + weight_bytes, s.output_c, params.output.mode,
                               params.output.zero_point, params.output.clamp);
  uint8_t* pad_pixel = packed_.data() + weight_bytes + columns_bytes;
  std::memset(pad_pixel, static_cast<uint8_t>(params.input_zero_point), pad_bytes);
  pad_pixel_ = pad_pixel;
  for (int32_t block = 0; block < blocks; ++block) {
    const int32_t zero_point = PackColumns(params, block);
    PackWeights(params, block, zero_point);
    terms_.push_back(-zero_point);
  }
  return Status();
}

// The columns of one block of channels. Returns the zero point that its weights keep when packed:
// 0, unless w - zero point does not fit the kernel's elements.
int32_t DepthwiseConv2D::PackColumns(const DepthwiseConv2DParams& params, int32_t block) {
  const ConvShape& s = params.shape;
  const int32_t input_offset = params.input_type == ByteType::kInt8 ? kernel_->int8_input_offset
                                                                    : kernel_->uint8_input_offset;
  const uint32_t zero_point = static_cast<uint32_t>(params.input_zero_point + input_offset);
  const int32_t largest_input = std::max(params.input_zero_point - ByteMin(params.input_type),
                                         ByteMax(params.input_type) - params.input_zero_point);
  int32_t smallest = 0, largest = 0;
  const int32_t first = block * kDepthwiseBlock;
  const int32_t end = std::min(first + kDepthwiseBlock, s.output_c);
  for (int32_t channel = first; channel < end; ++channel) {
    int64_t sum = 0;
    int64_t absolute_sum = 0;
    for (int64_t tap = 0; tap < int64_t{s.kernel_h} * s.kernel_w; ++tap) {
      const uint8_t byte = params.weights[tap * s.output_c + channel];
      const int32_t w = ByteValue(byte, params.weight_type) - params.weight_zero_point;
      smallest = std::min(smallest, w);
      largest = std::max(largest, w);
      sum += w;
      absolute_sum += std::abs(w);
    }
    const OutputChannel& output = params.output.channels[channel];
    const uint32_t bias =
        static_cast<uint32_t>(output.bias) - zero_point * static_cast<uint32_t>(sum);
    columns_.Set(channel, output, static_cast<int32_t>(bias),
                 absolute_sum * largest_input + std::abs(int64_t{output.bias}));
  }
  if (kernel_->element_bytes > 1 || (smallest >= -128 && largest <= 127)) return 0;
  return params.weight_zero_point - (params.weight_type == ByteType::kUInt8 ? 128 : 0);
}

// The weights of one block as cells: w - weight zero point + `zero_point`, once per line of a unit,
// `stride_h` taps further down for each.
void DepthwiseConv2D::PackWeights(const DepthwiseConv2DParams& params, int32_t block,
                                  int32_t zero_point) {
  const ConvShape& s = params.shape;
  const int32_t blocks = DivideRoundingUp(s.output_c, kDepthwiseBlock);
  const int32_t taps = kernel_->taps_per_cell;
  const int32_t first = block * kDepthwiseBlock;
  const int32_t end = std::min(first + kDepthwiseBlock, s.output_c);
  for (int32_t line = 0; line < unit_lines_; ++line) {
    uint8_t* const cells =
        packed_.data() + static_cast<size_t>(line) * WeightBytes(blocks) + WeightBytes(block);
    for (int32_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap) {
      const int32_t row = tap / s.kernel_w + line * s.stride_h;
      const int32_t cell = row / taps * s.kernel_w + tap % s.kernel_w;
      for (int32_t channel = first; channel < end; ++channel) {
        const uint8_t byte = params.weights[int64_t{tap} * s.output_c + channel];
        const int32_t packed =
            ByteValue(byte, params.weight_type) - params.weight_zero_point + zero_point;
        const int32_t element = (channel - first) * taps + row % taps;
        uint8_t* to = cells + cell * kDepthwiseCellBytes + element * kernel_->element_bytes;
        if (kernel_->element_bytes == 1) {
          *to = static_cast<uint8_t>(packed);
        } else {
          StoreLittleEndian(to, static_cast<int16_t>(packed));
        }
      }
    }
  }
}

size_t DepthwiseConv2D::CellsBytes() const {
  return static_cast<size_t>(int64_t{slice_blocks_} * row_groups_ * cell_columns_ *
                             kDepthwiseCellBytes);
}

size_t DepthwiseConv2D::ExpandedRowBytes() const {
  if (depth_multiplier_ == 1) return 0;
  return static_cast<size_t>(params_.shape.input_w) * static_cast<size_t>(slice_blocks_) *
         kDepthwiseBlock;
}

size_t DepthwiseConv2D::WorkerScratchBytes() const {
  const size_t expanded = ExpandedRowBytes() * static_cast<size_t>(kernel_->taps_per_cell);
  return CellsBytes() + AlignUp(expanded, Buffer::kAlignment);
}

size_t DepthwiseConv2D::ScratchBytes(int threads) const {
  return Buffer::kAlignment + static_cast<size_t>(threads) * WorkerScratchBytes();
}

void DepthwiseConv2D::Run(const uint8_t* input, uint8_t* output, uint8_t* scratch,
                          ThreadPool* pool) const {
  const ConvShape& s = params_.shape;
  if (s.output_h == 0 || s.output_w == 0) return;
  const int64_t image_units = DivideRoundingUp(s.output_h, unit_lines_);
  const int64_t slice_units = s.batch * image_units;
  const int64_t units = slice_units * slices_;
  scratch += -reinterpret_cast<uintptr_t>(scratch) % Buffer::kAlignment;
  const size_t worker_bytes = WorkerScratchBytes();
  const int threads = pool == nullptr ? 1 : pool->threads();
  ParallelFor(pool, threads, [&](int task, int worker) {
    const int64_t end = units * (task + 1) / threads;
    for (int64_t unit = units * task / threads; unit < end; ++unit) {
      const int32_t first_line = static_cast<int32_t>(unit % image_units) * unit_lines_;
      RunUnit({.input = input,
               .output = output,
               .scratch = scratch + static_cast<size_t>(worker) * worker_bytes,
               .image = unit % slice_units / image_units,
               .first_line = first_line,
               .lines = std::min(unit_lines_, s.output_h - first_line),
               .slice = static_cast<int32_t>(unit / slice_units)});
    }
  });
}

void DepthwiseConv2D::RunUnit(const Unit& unit) const {
  const ConvShape& s = params_.shape;
  const int64_t row_group_bytes = cell_columns_ * kDepthwiseCellBytes;
  for (int32_t row_group = 0; row_group < row_groups_; ++row_group) {
    InterleaveRows(unit, row_group, unit.scratch + row_group * row_group_bytes);
  }
  const int32_t first_block = unit.slice * slice_blocks_;
  const int32_t first_channel = first_block * kDepthwiseBlock;
  const size_t line_weights = WeightBytes(DivideRoundingUp(s.output_c, kDepthwiseBlock));
  for (int32_t line = 0; line < unit.lines; ++line) {
    const int64_t output_row = unit.image * s.output_h + unit.first_line + line;
    kernel_->run({.cells = unit.scratch,
                  .block_stride = row_groups_ * row_group_bytes,
                  .offsets = offsets_.data(),
                  .tap_groups = static_cast<int32_t>(offsets_.size()),
                  .pixel_step = s.stride_w * kDepthwiseCellBytes,
                  .weights = packed_.data() + static_cast<size_t>(line) * line_weights +
                             WeightBytes(first_block),
                  .terms = terms_.data() + first_block,
                  .ones = ones_.data() + static_cast<size_t>(line) * offsets_.size(),
                  .pixels = s.output_w,
                  .first_channel = first_channel,
                  .channels = std::min(slice_blocks_ * kDepthwiseBlock, s.output_c - first_channel),
                  .columns = &columns_,
                  .output = unit.output + output_row * s.output_w * s.output_c,
                  .output_stride = s.output_c});
  }
}

// The cells of one group of kernel rows: padding left of the image, the image, padding right.
void DepthwiseConv2D::InterleaveRows(const Unit& unit, int32_t row_group, uint8_t* cells) const {
  const ConvShape& s = params_.shape;
  const int32_t first_channel = unit.slice * slice_blocks_ * kDepthwiseBlock;
  const DepthwiseTap padding = {pad_pixel_, pad_pixel_ + AlignUp(s.output_c, kDepthwiseBlock), 0};
  InterleaveArgs args = {
      .taps = {padding, padding, padding, padding},
      .pixels = std::min(s.pad_left, cell_columns_),
      .channels = std::min(slice_blocks_ * kDepthwiseBlock, s.output_c - first_channel),
      .cells = cells,
      .block_stride = int64_t{row_groups_} * cell_columns_ * kDepthwiseCellBytes,
      .type = params_.input_type};
  const auto next = [&](int32_t pixels) {
    args.cells += args.pixels * kDepthwiseCellBytes;
    args.pixels = pixels;
  };
  int32_t left = cell_columns_ - args.pixels;
  if (args.pixels > 0) kernel_->interleave(args);

  next(std::min(left, s.input_w));
  left -= args.pixels;
  const InterleaveArgs outside = args;
  for (int32_t t = 0; t < kernel_->taps_per_cell; ++t) {
    args.taps[t] = RowTap(unit, row_group * kernel_->taps_per_cell + t, t);
  }
  if (args.pixels > 0) kernel_->interleave(args);

  args = outside;
  next(left);
  if (args.pixels > 0) kernel_->interleave(args);
}

// The activations of the unit's channels in row `row` under its first output row, as tap `tap` of a
// cell.
DepthwiseTap DepthwiseConv2D::RowTap(const Unit& unit, int32_t row, int32_t tap) const {
  const ConvShape& s = params_.shape;
  const int64_t y = int64_t{unit.first_line} * s.stride_h - s.pad_top + int64_t{row} * s.dilation_h;
  const int32_t rows = (unit.lines - 1) * s.stride_h + s.kernel_h;  // dilated only if 1 line
  if (row >= rows || y < 0 || y >= s.input_h) {
    return {pad_pixel_, pad_pixel_ + AlignUp(s.output_c, kDepthwiseBlock), 0};
  }
  const int32_t first = unit.slice * slice_blocks_ * kDepthwiseBlock;
  const uint8_t* from = unit.input + (unit.image * s.input_h + y) * s.input_w * s.input_c;
  if (depth_multiplier_ == 1) {
    return {from + first, unit.input + s.InputBytes(), s.input_c};
  }
  // Each input channel once per output channel, so that the kernels need not know.
  const int32_t channels = std::min(slice_blocks_ * kDepthwiseBlock, s.output_c - first);
  uint8_t* const expanded =
      unit.scratch + CellsBytes() + static_cast<size_t>(tap) * ExpandedRowBytes();
  uint8_t* to = expanded;
  for (int32_t x = 0; x < s.input_w; ++x, from += s.input_c) {
    int32_t channel = first / depth_multiplier_;
    int32_t copies = depth_multiplier_ - first % depth_multiplier_;
    for (int32_t c = 0; c < channels; ++c) {
      *to++ = from[channel];
      if (--copies == 0) {
        ++channel;
        copies = depth_multiplier_;
      }
    }
  }
  return {expanded, to, channels};
}

const char* DepthwiseConv2D::kernel_name() const { return kernel_->name; }

}  // namespace atollrt
