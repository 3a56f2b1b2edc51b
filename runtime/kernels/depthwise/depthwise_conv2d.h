// SPDX-License-Identifier: Apache-2.0
//
// Quantized depthwise convolution, NHWC: output channel i * depth_multiplier + j is input channel
// i filtered with its own kernel. Arithmetic and contracts as in conv2d.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/depthwise/depthwise_kernel.h"

namespace atollrt {

using DepthwiseConv2DParams = Conv2DParams;

// See Conv2D; the same promises hold.
class DepthwiseConv2D {
 public:
  static Result<DepthwiseConv2D> Prepare(const DepthwiseConv2DParams& params, CpuFeatures features);
  static std::vector<uint8_t> PackWeights(const DepthwiseConv2DParams& params,
                                          CpuFeatures features);
  size_t ScratchBytes(int threads) const;
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;
  void RunLines(const LineWindow& input, LineRange lines, uint8_t* output, uint8_t* scratch) const;
  const ConvShape& shape() const { return params_.shape; }
  const char* kernel_name() const;
  bool uses_packed_weights() const {
    return conv_ ? conv_->uses_packed_weights() : uses_packed_weights_;
  }
  int32_t CountFloatChannels() const {
    return conv_ ? conv_->CountFloatChannels() : columns_.CountFloat();
  }

 private:
  // Some blocks of 16 channels of some neighbouring output rows: what is computed at a time.
  struct Unit {
    const uint8_t* input;  // of line `input_line`
    const uint8_t* input_end;
    int32_t input_line;
    uint8_t* output;  // of line `output_line`
    int32_t output_line;
    uint8_t* scratch;
    int64_t image;  // in the batch
    int32_t first_line;
    int32_t lines;
    int32_t first_block;
    int32_t blocks;
  };
  // One cell of weights: those of a tap group, or a part of them (packed_weights.h).
  struct Cell {
    int32_t group;
    int32_t part;
  };
  using Cells = std::vector<std::vector<Cell>>;  // [unit_lines_][blocks]
  // All that does not depend on weights.
  void SetMeasures(const DepthwiseConv2DParams& params, CpuFeatures features);
  std::array<uint32_t, 11> PackedFor() const;
  // What depends on them: packs them, or takes what `packed` has, if it is not nullptr; good for
  // nothing if that has failed.
  Status SetWeights(const DepthwiseConv2DParams& params, PackedWeightsReader* packed,
                    bool has_fits);
  Cells AllCells(const DepthwiseConv2DParams& params) const;
  Cells ReadCells(PackedWeightsReader* packed) const;
  void PackCells(const DepthwiseConv2DParams& params, const Cells& cells, uint8_t* to) const;
  WeightSums SumChannel(const DepthwiseConv2DParams& params, int32_t channel) const;
  const uint8_t* TapWeights(const DepthwiseConv2DParams& params, int32_t line, int32_t group,
                            int32_t tap) const;
  bool WeightsFitBytes(const DepthwiseConv2DParams& params, int32_t block) const;
  std::vector<Cell> CellsOf(const DepthwiseConv2DParams& params, int32_t line, int32_t block) const;
  void PackCell(const DepthwiseConv2DParams& params, int32_t line, int32_t block, Cell cell,
                uint8_t* to) const;
  bool CanRunRows() const;
  int32_t RowColumns() const;  // of the input
  void RunUnit(const Unit& unit) const;
  void RunUnitRows(const Unit& unit) const;
  void InterleaveRows(const Unit& unit, int32_t row_group, uint8_t* cells) const;
  DepthwiseTap Padding() const;
  DepthwiseTap RowTap(const Unit& unit, int32_t row, int32_t tap) const;
  int32_t blocks() const;  // of channels
  int32_t SliceBlocks(int64_t slice_units, int threads) const;
  int32_t FirstChannel(const Unit& unit) const { return unit.first_block * kDepthwiseBlock; }
  int32_t Channels(const Unit& unit) const;
  int32_t tap_groups() const { return row_groups_ * params_.shape.kernel_w; }
  size_t CellsBytes() const;        // of one unit
  size_t ExpandedRowBytes() const;  // 0 for depth multiplier 1
  size_t WorkerScratchBytes() const;

  DepthwiseConv2DParams params_;  // without weights and channels
  // Of one input channel, this is a convolution like any other, and the rest is not used.
  std::optional<Conv2D> conv_;
  const DepthwiseKernel* kernel_ = nullptr;
  bool uses_packed_weights_ = false;
  bool by_rows_ = false;  // with kernel_->run_rows
  int32_t depth_multiplier_ = 1;
  int32_t row_groups_ = 0;  // ceil(kernel_h / taps_per_cell)
  // Taps that kernel_h leaves unused in the last row group hold the next rows of the input, so the
  // same cells serve this many output rows, each with its weights moved down.
  int32_t unit_lines_ = 1;
  int64_t cell_columns_ = 0;             // columns of cells under one output row, padding included
  int32_t slice_blocks_ = 0;             // blocks of channels of a unit, at most
  std::vector<int64_t> offsets_;         // what the following point into
  std::vector<DepthwiseBlock> weights_;  // [unit_lines_][blocks]
  Buffer packed_;                        // weights, unless they came packed
  Buffer columns_memory_;                // columns, a padding pixel
  const uint8_t* pad_pixel_ = nullptr;
  Buffer pad_line_;  // with by_rows_: stands for lines outside of the image
  OutputColumns columns_;
};

void ReferenceDepthwiseConv2D(const DepthwiseConv2DParams& params, const uint8_t* input,
                              uint8_t* output);

}  // namespace atollrt
