// SPDX-License-Identifier: Apache-2.0
//
// A convolution as the rows of a matrix product (gemm.h), block by block: some lines by some
// columns of output pixels, whose activations are read in place where the kernel can do that, and
// otherwise copied, with the padding around them, into a scratch block that fits the L1 or L2
// cache. No activation is copied more than once per block.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/gemm/gemm.h"

namespace atollrt {

class ConvBlocks {
 public:
  // Output pixels of one image: lines [line, line + lines) by columns [column, column + columns).
  struct Block {
    int64_t image = 0;
    int32_t line = 0, lines = 0;
    int32_t column = 0, columns = 0;
  };
  // Where the rows of a block are: pixel (line, column) at data + line * line_stride + column *
  // stride, in bytes.
  struct Rows {
    const uint8_t* data = nullptr;
    int64_t stride = 0;
    int64_t line_stride = 0;
  };

  ConvBlocks() = default;
  // `pad_pixel` holds input_c / groups input zero points; it is borrowed.
  ConvBlocks(const ConvShape& shape, ByteType type, const GemmKernel* kernel,
             const uint8_t* pad_pixel);

  // The output as seen from here: a convolution that maps pixels to pixels, one by one, has a
  // single line of all of them.
  int64_t images() const { return shape_.batch; }
  int32_t lines() const { return shape_.output_h; }
  int32_t columns() const { return shape_.output_w; }
  // The largest blocks that Get takes.
  int32_t block_lines() const { return block_lines_; }
  int32_t block_columns() const { return block_columns_; }
  // Of the scratch block; any alignment serves. 0 if all is read in place.
  int64_t scratch_bytes() const { return scratch_bytes_; }

  // Elements of a segment of a row, and where segments begin: see RhsWeights.
  int64_t segment_depth() const { return segment_depth_; }
  const std::vector<int64_t>& segment_offsets() const { return segment_offsets_; }

  // The activations of the batch, or some lines of the only image in it.
  struct Input {
    const uint8_t* data = nullptr;  // of line `first_line`
    const uint8_t* end = nullptr;   // nothing at or past this is read
    int32_t first_line = 0;
  };
  // The rows of `block` for the channels of `group`. They are valid until the next call with the
  // same scratch, and as long as `input`.
  Rows Get(const Input& input, int32_t group, const Block& block, uint8_t* scratch) const;

 private:
  void ChooseBlock();
  void SetSegments();
  void CopyLine(const uint8_t* line, const uint8_t* input_end, const Block& block,
                uint8_t* to) const;
  void Fill(uint8_t* to, int64_t pixels) const;
  void CopyPixels(const uint8_t* from, const uint8_t* input_end, uint8_t* to, int64_t pixels) const;
  int64_t InputColumns(int64_t columns) const;
  int64_t InputLines(int64_t lines) const;

  ConvShape shape_;  // kernels of one pixel made into one line
  ByteType type_ = ByteType::kInt8;
  const GemmKernel* kernel_ = nullptr;
  const uint8_t* pad_pixel_ = nullptr;
  int64_t group_channels_ = 0;
  bool in_place_ = false;
  // From one line (column) of a copied block to the next, in the input; 1 unless those in between
  // are not needed.
  int32_t line_step_ = 1, column_step_ = 1;
  int64_t pixel_bytes_ = 0;  // between neighbouring pixels of a block, or of the input if in place
  int64_t line_bytes_ = 0;   // between its lines
  int32_t block_lines_ = 0, block_columns_ = 0;
  int64_t scratch_bytes_ = 0;
  int64_t segment_depth_ = 0;
  std::vector<int64_t> segment_offsets_;
};

}  // namespace atollrt
