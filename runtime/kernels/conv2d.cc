// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/conv2d.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

int64_t OutputPixels(const ConvShape& s) { return int64_t{s.batch} * s.output_h * s.output_w; }

uint8_t* AlignPointer(uint8_t* pointer) {
  return pointer + (-reinterpret_cast<uintptr_t>(pointer) % Buffer::kAlignment);
}

// The zero point of weights as PackRhs leaves them.
int32_t PackedWeightZeroPoint(const Conv2DParams& params) {
  return params.weight_zero_point - (params.weight_type == ByteType::kUInt8 ? 128 : 0);
}

// Output channel `channel` as column `column`: folds all that the weights alone determine into the
// bias (gemm.h), and bounds the accumulator.
void SetColumn(const Conv2DParams& params, const GemmKernel& kernel, int32_t channel,
               int32_t column, OutputColumns* columns) {
  const ConvShape& s = params.shape;
  const int64_t depth = int64_t{s.kernel_h} * s.kernel_w * (s.input_c / s.groups);
  const uint8_t* weights = params.weights + channel * depth;
  int64_t sum = 0;  // of w - zero point; below 2^31 * 2^8
  int64_t absolute_sum = 0;
  for (int64_t k = 0; k < depth; ++k) {
    const int32_t weight = ByteValue(weights[k], params.weight_type) - params.weight_zero_point;
    sum += weight;
    absolute_sum += std::abs(weight);
  }
  const int32_t lhs_offset = params.input_type == ByteType::kInt8 ? kernel.int8_lhs_offset : 0;
  const uint32_t zero_point = static_cast<uint32_t>(params.input_zero_point + lhs_offset);
  const OutputChannel& output = params.output.channels[channel];
  const uint32_t bias =
      static_cast<uint32_t>(output.bias) - zero_point * static_cast<uint32_t>(sum);
  const int32_t largest = std::max(params.input_zero_point - ByteMin(params.input_type),
                                   ByteMax(params.input_type) - params.input_zero_point);
  columns->Set(column, output, static_cast<int32_t>(bias),
               absolute_sum * largest + std::abs(int64_t{output.bias}));
}

}  // namespace

void ReferenceConv2D(const Conv2DParams& params, const uint8_t* input, uint8_t* output) {
  const ConvShape& s = params.shape;
  const int32_t group_in = s.input_c / s.groups;
  const int32_t group_out = s.output_c / s.groups;
  for (int32_t n = 0; n < s.batch; ++n) {
    for (int32_t y = 0; y < s.output_h; ++y) {
      for (int32_t x = 0; x < s.output_w; ++x) {
        for (int32_t o = 0; o < s.output_c; ++o) {
          const int32_t first_channel = (o / group_out) * group_in;
          uint32_t accumulator = 0;
          for (int32_t ky = 0; ky < s.kernel_h; ++ky) {
            const int64_t in_y = int64_t{y} * s.stride_h - s.pad_top + int64_t{ky} * s.dilation_h;
            if (in_y < 0 || in_y >= s.input_h) continue;
            for (int32_t kx = 0; kx < s.kernel_w; ++kx) {
              const int64_t in_x =
                  int64_t{x} * s.stride_w - s.pad_left + int64_t{kx} * s.dilation_w;
              if (in_x < 0 || in_x >= s.input_w) continue;
              const uint8_t* cell =
                  input + ((n * int64_t{s.input_h} + in_y) * s.input_w + in_x) * s.input_c +
                  first_channel;
              const uint8_t* weight =
                  params.weights + ((int64_t{o} * s.kernel_h + ky) * s.kernel_w + kx) * group_in;
              for (int32_t c = 0; c < group_in; ++c) {
                accumulator += static_cast<uint32_t>(
                    (ByteValue(cell[c], params.input_type) - params.input_zero_point) *
                    (ByteValue(weight[c], params.weight_type) - params.weight_zero_point));
              }
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

Result<Conv2D> Conv2D::Prepare(const Conv2DParams& params, CpuFeatures features) {
  const ConvShape& s = params.shape;
  Conv2D conv;
  conv.params_ = params;
  conv.kernel_ = &ChooseGemm(features);
  const GemmKernel& kernel = *conv.kernel_;
  const int64_t group_in = s.input_c / s.groups;
  const int32_t group_out = s.output_c / s.groups;
  const int64_t depth = s.kernel_h * s.kernel_w * group_in;

  // One block: for each group the weights and the columns, then the pad row.
  conv.rhs_bytes_ = AlignUp(PackedRhsBytes(kernel, group_out, depth), Buffer::kAlignment);
  const size_t columns_bytes = AlignUp(OutputColumns::Bytes(group_out), Buffer::kAlignment);
  const size_t pad_bytes = static_cast<size_t>(s.kernel_w * group_in);
  const size_t groups = static_cast<size_t>(s.groups);
  ATOLL_ASSIGN_OR_RETURN(conv.packed_,
                         Buffer::Allocate(groups * (conv.rhs_bytes_ + columns_bytes) + pad_bytes));
  uint8_t* columns = conv.packed_.data() + groups * conv.rhs_bytes_;
  uint8_t* pad_row = columns + groups * columns_bytes;
  std::memset(pad_row, static_cast<uint8_t>(params.input_zero_point), pad_bytes);
  conv.patches_ = Patches(s, params.input_type, conv.kernel_, pad_row);

  conv.columns_.reserve(groups);
  for (int32_t group = 0; group < s.groups; ++group) {
    PackRhs(kernel, params.weights + group * group_out * depth, params.weight_type, group_out,
            depth, conv.packed_.data() + group * conv.rhs_bytes_);
    conv.columns_.push_back(OutputColumns::In(columns + group * columns_bytes, group_out,
                                              params.output.mode, params.output.zero_point,
                                              params.output.clamp));
    for (int32_t c = 0; c < group_out; ++c) {
      SetColumn(params, kernel, group * group_out + c, c, &conv.columns_.back());
    }
  }
  conv.row_factor_ = -PackedWeightZeroPoint(params);
  conv.params_.weights = nullptr;
  conv.params_.output.channels = {};
  return conv;
}

int32_t Conv2D::BlockRows() const {
  // Blocks that share L1 with a panel of weights, of whole tiles if possible, and not so many rows
  // that the outputs of one panel would leave L1 before the next panel's join them.
  constexpr int64_t kBlockBytes = 24 << 10;
  const int64_t tile = kernel_->tile_rows;
  const int64_t tiles = std::clamp<int64_t>(kBlockBytes / (tile * patches_.row_stride()), 1, 8);
  return static_cast<int32_t>(std::min<int64_t>(tile * tiles, OutputPixels(params_.shape)));
}

size_t Conv2D::WorkerScratchBytes() const {
  const int64_t rows = BlockRows();
  const size_t terms = AlignUp(static_cast<size_t>(rows) * sizeof(int32_t), Buffer::kAlignment);
  const size_t block = static_cast<size_t>(rows * patches_.row_stride() + kLhsSlack);
  return terms + AlignUp(block, Buffer::kAlignment);
}

size_t Conv2D::ScratchBytes(int threads) const {
  return Buffer::kAlignment + static_cast<size_t>(threads) * WorkerScratchBytes();
}

void Conv2D::Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const {
  const ConvShape& s = params_.shape;
  const int64_t pixels = OutputPixels(s);
  if (pixels == 0) return;
  scratch = AlignPointer(scratch);
  const size_t worker_bytes = WorkerScratchBytes();
  const int threads = pool == nullptr ? 1 : pool->threads();
  const int32_t group_out = s.output_c / s.groups;
  const int32_t panel = kernel_->panel_columns;
  const int32_t panels = DivideRoundingUp(group_out, panel);

  // Pixels are split between the threads, unless there are too few to fill their tiles; then, as
  // in a fully connected layer, each thread takes a part of the weights.
  const bool split_columns = pixels < int64_t{threads} * kernel_->tile_rows && panels >= threads;
  ParallelFor(pool, threads, [&](int task, int worker) {
    Part part = {.input = input,
                 .output = output,
                 .scratch = scratch + static_cast<size_t>(worker) * worker_bytes,
                 .first_pixel = 0,
                 .end_pixel = pixels,
                 .first_column = 0,
                 .end_column = group_out};
    if (split_columns) {
      part.first_column = static_cast<int32_t>(int64_t{panels} * task / threads) * panel;
      part.end_column =
          std::min(group_out, static_cast<int32_t>(int64_t{panels} * (task + 1) / threads) * panel);
    } else {
      part.first_pixel = pixels * task / threads;
      part.end_pixel = pixels * (task + 1) / threads;
    }
    for (int32_t group = 0; group < s.groups; ++group) RunPart(part, group);
  });
}

void Conv2D::RunPart(const Part& part, int32_t group) const {
  const ConvShape& s = params_.shape;
  const int32_t block_rows = BlockRows();
  int32_t* const row_terms = reinterpret_cast<int32_t*>(part.scratch);
  uint8_t* const block = part.scratch + AlignUp(block_rows * sizeof(int32_t), Buffer::kAlignment);
  const int32_t group_out = s.output_c / s.groups;
  for (int64_t pixel = part.first_pixel; pixel < part.end_pixel; pixel += block_rows) {
    const int32_t rows =
        static_cast<int32_t>(std::min<int64_t>(block_rows, part.end_pixel - pixel));
    patches_.Copy(part.input, group, pixel, rows, block);
    if (row_factor_ != 0) {
      kernel_->row_terms({.lhs = block,
                          .lhs_stride = patches_.row_stride(),
                          .rows = rows,
                          .depth = patches_.depth(),
                          .factor = row_factor_,
                          .terms = row_terms});
    }
    kernel_->run({.lhs = block,
                  .lhs_stride = patches_.row_stride(),
                  .row_terms = row_factor_ != 0 ? row_terms : nullptr,
                  .rows = rows,
                  .rhs = packed_.data() + group * rhs_bytes_,
                  .padded_depth = PaddedDepth(*kernel_, patches_.depth()),
                  .first_column = part.first_column,
                  .end_column = part.end_column,
                  .columns = &columns_[group],
                  .output = part.output + pixel * s.output_c + group * group_out,
                  .output_stride = s.output_c});
  }
}

const char* Conv2D::kernel_name() const { return kernel_->name; }

}  // namespace atollrt
