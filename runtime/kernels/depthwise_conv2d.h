// SPDX-License-Identifier: Apache-2.0
//
// Quantized depthwise convolution, NHWC: output channel i * depth_multiplier + j is input channel
// i filtered with its own kernel. Arithmetic and contracts as in conv2d.h.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/depthwise_conv/depthwise_conv.h"

namespace atollrt {

struct DepthwiseConv2DParams {
  // groups is ignored; output_c = input_c * depth multiplier.
  ConvShape shape;
  ByteType input_type = ByteType::kInt8;
  ByteType weight_type = ByteType::kInt8;
  int32_t input_zero_point = 0;
  int32_t weight_zero_point = 0;
  const uint8_t* weights = nullptr;  // [kernel_h, kernel_w, output_c]; borrowed during Prepare
  OutputStage output;
};

// See Conv2D; the same promises hold.
class DepthwiseConv2D {
 public:
  static Result<DepthwiseConv2D> Prepare(const DepthwiseConv2DParams& params, CpuFeatures features);
  size_t ScratchBytes(int threads) const;
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;
  const char* kernel_name() const;

 private:
  // Some blocks of 16 channels of one output row: what is computed at a time.
  struct Unit {
    const uint8_t* input;
    uint8_t* output;
    uint8_t* scratch;
    int64_t line;  // output row, counted through the batch
    int32_t slice;
  };
  Status Pack(const DepthwiseConv2DParams& params);
  void PackBlock(const DepthwiseConv2DParams& params, int32_t block, OutputColumns* columns);
  void RunUnit(const Unit& unit) const;
  void InterleaveRows(const Unit& unit, int32_t row_group, uint8_t* cells) const;
  DepthwiseTap RowTap(const Unit& unit, int32_t ky, int32_t tap) const;
  size_t CellsBytes() const;        // of one unit
  size_t ExpandedRowBytes() const;  // 0 for depth multiplier 1
  size_t WorkerScratchBytes() const;

  DepthwiseConv2DParams params_;  // without weights and channels
  const DepthwiseKernel* kernel_ = nullptr;
  int32_t depth_multiplier_ = 1;
  int32_t row_groups_ = 0;    // ceil(kernel_h / taps_per_cell)
  int32_t cell_columns_ = 0;  // columns of cells under one output row, padding included
  int32_t slice_blocks_ = 0;  // blocks of channels of a unit
  int32_t slices_ = 0;
  // [row_groups_ * kernel_w]: see DepthwiseArgs.
  std::vector<int64_t> offsets_;
  std::vector<uint32_t> ones_;
  std::vector<int32_t> terms_;  // [blocks]
  Buffer packed_;               // weights, columns, a padding pixel
  const uint8_t* pad_pixel_ = nullptr;
  OutputColumns columns_;
};

void ReferenceDepthwiseConv2D(const DepthwiseConv2DParams& params, const uint8_t* input,
                              uint8_t* output);

}  // namespace atollrt
