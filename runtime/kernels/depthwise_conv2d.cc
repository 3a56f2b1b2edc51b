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
  conv.cell_columns_ =
      std::max(s.output_w - 1, 0) * s.stride_w + (s.kernel_w - 1) * s.dilation_w + 1;

  // Units whose cells leave room in L1 for weights and outputs.
  constexpr int64_t kUnitBytes = 24 << 10;
  const int64_t block_bytes = int64_t{conv.row_groups_} * conv.cell_columns_ * kDepthwiseCellBytes;
  const int32_t blocks = DivideRoundingUp(s.output_c, kDepthwiseBlock);
  conv.slice_blocks_ =
      static_cast<int32_t>(std::clamp<int64_t>(kUnitBytes / block_bytes, 1, blocks));
  conv.slices_ = DivideRoundingUp(blocks, conv.slice_blocks_);

  for (int32_t row_group = 0; row_group < conv.row_groups_; ++row_group) {
    uint32_t ones = 0;
    for (int32_t t = 0; t < conv.kernel_->taps_per_cell; ++t) {
      if (row_group * conv.kernel_->taps_per_cell + t < s.kernel_h) ones |= 1u << (8 * t);
    }
    for (int32_t kx = 0; kx < s.kernel_w; ++kx) {
      conv.offsets_.push_back((int64_t{row_group} * conv.cell_columns_ + kx * s.dilation_w) *
                              kDepthwiseCellBytes);
      conv.ones_.push_back(ones);
    }
  }
  ATOLL_RETURN_IF_ERROR(conv.Pack(params));
  return conv;
}

Status DepthwiseConv2D::Pack(const DepthwiseConv2DParams& params) {
  const ConvShape& s = params.shape;
  const int32_t blocks = DivideRoundingUp(s.output_c, kDepthwiseBlock);
  const size_t weight_bytes = static_cast<size_t>(blocks) * offsets_.size() * kDepthwiseCellBytes;
  const size_t columns_bytes = AlignUp(OutputColumns::Bytes(s.output_c), Buffer::kAlignment);
  const size_t pad_bytes = static_cast<size_t>(blocks) * kDepthwiseBlock;
  ATOLL_ASSIGN_OR_RETURN(packed_, Buffer::Allocate(weight_bytes + columns_bytes + pad_bytes));
  columns_ = OutputColumns::In(packed_.data() + weight_bytes, s.output_c, params.output.mode,
                               params.output.zero_point, params.output.clamp);
  uint8_t* pad_pixel = packed_.data() + weight_bytes + columns_bytes;
  std::memset(pad_pixel, static_cast<uint8_t>(params.input_zero_point), pad_bytes);
  pad_pixel_ = pad_pixel;
  terms_.assign(static_cast<size_t>(blocks), 0);
  for (int32_t block = 0; block < blocks; ++block) PackBlock(params, block, &columns_);
  return Status();
}

// The weights of one block as cells, and its channels' columns. Packed are w - zero point, or, if
// that does not fit the kernel's elements, w as int8 and a term for the rest (depthwise_conv.h).
void DepthwiseConv2D::PackBlock(const DepthwiseConv2DParams& params, int32_t block,
                                OutputColumns* columns) {
  const ConvShape& s = params.shape;
  const int32_t first = block * kDepthwiseBlock;
  const int32_t end = std::min(first + kDepthwiseBlock, s.output_c);
  const int32_t taps = kernel_->taps_per_cell;
  const int32_t area = s.kernel_h * s.kernel_w;
  const auto weight = [&](int32_t ky, int32_t kx, int32_t channel) {
    const int64_t index = (int64_t{ky} * s.kernel_w + kx) * s.output_c + channel;
    return ByteValue(params.weights[index], params.weight_type) - params.weight_zero_point;
  };
  int32_t smallest = 0, largest = 0;
  const int32_t input_offset =
      params.input_type == ByteType::kInt8 ? kernel_->int8_input_offset : 0;
  const uint32_t zero_point = static_cast<uint32_t>(params.input_zero_point + input_offset);
  const int32_t largest_input = std::max(params.input_zero_point - ByteMin(params.input_type),
                                         ByteMax(params.input_type) - params.input_zero_point);
  for (int32_t channel = first; channel < end; ++channel) {
    int64_t sum = 0;
    int64_t absolute_sum = 0;
    for (int32_t tap = 0; tap < area; ++tap) {
      const int32_t w = weight(tap / s.kernel_w, tap % s.kernel_w, channel);
      smallest = std::min(smallest, w);
      largest = std::max(largest, w);
      sum += w;
      absolute_sum += std::abs(w);
    }
    const OutputChannel& output = params.output.channels[channel];
    const uint32_t bias =
        static_cast<uint32_t>(output.bias) - zero_point * static_cast<uint32_t>(sum);
    columns->Set(channel, output, static_cast<int32_t>(bias),
                 absolute_sum * largest_input + std::abs(int64_t{output.bias}));
  }

  int32_t packed_zero_point = 0;
  if (kernel_->element_bytes == 1 && (smallest < -128 || largest > 127)) {
    packed_zero_point =
        params.weight_zero_point - (params.weight_type == ByteType::kUInt8 ? 128 : 0);
    terms_[block] = -packed_zero_point;
  }
  uint8_t* cell = packed_.data() + block * offsets_.size() * kDepthwiseCellBytes;
  for (int32_t row_group = 0; row_group < row_groups_; ++row_group) {
    for (int32_t kx = 0; kx < s.kernel_w; ++kx, cell += kDepthwiseCellBytes) {
      for (int32_t channel = first; channel < end; ++channel) {
        for (int32_t t = 0; t < taps; ++t) {
          const int32_t ky = row_group * taps + t;
          if (ky >= s.kernel_h) continue;
          const int32_t packed = weight(ky, kx, channel) + packed_zero_point;
          const int32_t element = (channel - first) * taps + t;
          if (kernel_->element_bytes == 1) {
            cell[element] = static_cast<uint8_t>(packed);
          } else {
            StoreLittleEndian(cell + 2 * element, static_cast<int16_t>(packed));
          }
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
  const int64_t lines = int64_t{s.batch} * s.output_h;
  const int64_t units = s.output_w == 0 ? 0 : lines * slices_;
  if (units == 0) return;
  scratch += -reinterpret_cast<uintptr_t>(scratch) % Buffer::kAlignment;
  const size_t worker_bytes = WorkerScratchBytes();
  const int threads = pool == nullptr ? 1 : pool->threads();
  ParallelFor(pool, threads, [&](int task, int worker) {
    const int64_t end = units * (task + 1) / threads;
    for (int64_t unit = units * task / threads; unit < end; ++unit) {
      RunUnit({.input = input,
               .output = output,
               .scratch = scratch + static_cast<size_t>(worker) * worker_bytes,
               .line = unit % lines,
               .slice = static_cast<int32_t>(unit / lines)});
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
  kernel_->run({.cells = unit.scratch,
                .block_stride = row_groups_ * row_group_bytes,
                .offsets = offsets_.data(),
                .tap_groups = static_cast<int32_t>(offsets_.size()),
                .pixel_step = s.stride_w * kDepthwiseCellBytes,
                .weights = packed_.data() + first_block * offsets_.size() * kDepthwiseCellBytes,
                .terms = terms_.data() + first_block,
                .ones = ones_.data(),
                .pixels = s.output_w,
                .first_channel = first_channel,
                .channels = std::min(slice_blocks_ * kDepthwiseBlock, s.output_c - first_channel),
                .columns = &columns_,
                .output = unit.output + unit.line * s.output_w * s.output_c,
                .output_stride = s.output_c});
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

// Kernel row ky's activations of the unit's channels, as tap `tap` of a cell.
DepthwiseTap DepthwiseConv2D::RowTap(const Unit& unit, int32_t ky, int32_t tap) const {
  const ConvShape& s = params_.shape;
  const int64_t y = unit.line % s.output_h * s.stride_h - s.pad_top + int64_t{ky} * s.dilation_h;
  if (ky >= s.kernel_h || y < 0 || y >= s.input_h) {
    return {pad_pixel_, pad_pixel_ + AlignUp(s.output_c, kDepthwiseBlock), 0};
  }
  const int32_t first = unit.slice * slice_blocks_ * kDepthwiseBlock;
  const int64_t image_row = unit.line / s.output_h * s.input_h + y;
  const uint8_t* row = unit.input + image_row * s.input_w * s.input_c;
  if (depth_multiplier_ == 1) {
    return {row + first, unit.input + s.InputBytes(), s.input_c};
  }
  // Each input channel once per output channel, so that the kernels need not know.
  const int32_t channels = std::min(slice_blocks_ * kDepthwiseBlock, s.output_c - first);
  uint8_t* const expanded =
      unit.scratch + CellsBytes() + static_cast<size_t>(tap) * ExpandedRowBytes();
  uint8_t* to = expanded;
  for (int32_t x = 0; x < s.input_w; ++x, row += s.input_c) {
    int32_t channel = first / depth_multiplier_;
    int32_t copies = depth_multiplier_ - first % depth_multiplier_;
    for (int32_t c = 0; c < channels; ++c) {
      *to++ = row[channel];
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
