// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of depthwise convolutions. Dot product instructions add neighbouring products,
// but the taps of one channel lie a whole row of the image apart. So the input rows under one
// output row are first interleaved: a cell holds, for 16 channels of one column, the activations of
// `taps_per_cell` kernel rows side by side. Every output pixel is then kernel_w (times
// ceil(kernel_h / taps_per_cell)) products of cells and equally interleaved weights, whatever the
// stride, dilation and padding; and each cell serves all output pixels above it.
//
// The cells of one output row and some blocks of 16 channels live in an L1-size scratch block:
// [block][kernel row group][column]. All functions are thread-safe. Of ISA files the same is true
// as of those of gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

inline constexpr int32_t kDepthwiseBlock = 16;  // channels of a cell
inline constexpr int64_t kDepthwiseCellBytes = 64;
inline constexpr int32_t kMaxTapsPerCell = 4;

// Activations of one kernel row: pixel p, channel c at pixels + p * stride + c.
struct DepthwiseTap {
  const uint8_t* pixels = nullptr;
  const uint8_t* end = nullptr;  // nothing at or past this is read
  int64_t stride = 0;            // 0 for rows outside the image: one padding pixel
};

struct InterleaveArgs {
  DepthwiseTap taps[kMaxTapsPerCell];  // the first taps_per_cell
  int32_t pixels = 0;
  int32_t channels = 0;      // the last cell is padded with anything
  uint8_t* cells = nullptr;  // of block 0, pixel 0; neighbouring pixels are neighbours
  int64_t block_stride = 0;
  ByteType type = ByteType::kInt8;
};

// The weights of 16 channels: one cell per tap group.
struct DepthwiseBlock {
  const uint8_t* weights = nullptr;  // [tap_groups], a cell each
  // Tap group g of output pixel p multiplies the cell at offsets[g] + p * pixel_step. Weights less
  // their zero point that do not fit a byte are the sum of those of several groups.
  const int64_t* offsets = nullptr;
  int64_t tap_groups = 0;
};

struct DepthwiseArgs {
  const uint8_t* cells = nullptr;  // of block 0
  int64_t block_stride = 0;
  int64_t pixel_step = 0;
  const DepthwiseBlock* blocks = nullptr;
  int32_t pixels = 0;
  int32_t first_channel = 0;  // a multiple of 16; `cells` and `blocks` are its block's
  int32_t channels = 0;
  const OutputColumns* columns = nullptr;  // of channel 0
  uint8_t* output = nullptr;               // of pixel 0, channel 0
  int64_t output_stride = 0;               // bytes between pixels
};

// The same in one step, cells staying in registers, for filters of three columns that touch, and
// of so many rows that their cells have kMaxTapsPerCell taps.
struct DepthwiseRowsArgs {
  // Column 0 of the input, `first_channel`; all of the same stride, also those outside of the
  // image.
  DepthwiseTap taps[kMaxTapsPerCell];
  // A pixel, of whole blocks of channels, that stands for columns outside of the input.
  const uint8_t* padding = nullptr;
  int32_t input_w = 0;
  int32_t pad_left = 0;  // at most 2
  int32_t stride_w = 0;  // 1 or 2
  ByteType type = ByteType::kInt8;
  // Line l of the output has the weights blocks + l * line_blocks; their offsets are at most two
  // cells.
  int32_t lines = 0;
  const DepthwiseBlock* blocks = nullptr;
  int64_t line_blocks = 0;
  int32_t pixels = 0;
  int32_t first_channel = 0;  // a multiple of 16; `blocks` are its block's
  int32_t channels = 0;
  const OutputColumns* columns =
      nullptr;                // of channel 0; all are wide_vectorizable, and kFixedPoint
  uint8_t* output = nullptr;  // of line 0, pixel 0, channel 0
  int64_t output_stride = 0;  // bytes between pixels
  int64_t output_line_stride = 0;
};

struct DepthwiseKernel {
  const char* name;
  int32_t taps_per_cell;  // 16 channels * taps_per_cell * element_bytes = 64
  int32_t element_bytes;  // of activations and weights in a cell
  // Added to activations of either type by interleave, so that the cells are of the type that the
  // instruction multiplies.
  int32_t int8_input_offset = 0;
  int32_t uint8_input_offset = 0;

  // What the output stage wants of columns besides; nullptr if nothing.
  FitFloatColumn fit = nullptr;

  void (*interleave)(const InterleaveArgs& args);
  // Writes exactly pixels * channels bytes.
  void (*run)(const DepthwiseArgs& args);
  // Writes exactly lines * pixels * channels bytes; nullptr if there is no such kernel.
  void (*run_rows)(const DepthwiseRowsArgs& args);
  // Whether run_rows takes weights that are the sum of those of several groups.
  bool rows_take_sums = false;
};

#define ATOLL_DEPTHWISE_KERNEL(name, features) extern const DepthwiseKernel name;
#include "runtime/kernels/depthwise/kernels.inc"
#undef ATOLL_DEPTHWISE_KERNEL

// The fastest kernel for a CPU with `features` (a CpuFeatures).
const DepthwiseKernel& ChooseDepthwise(uint32_t features);

}  // namespace atollrt
