// SPDX-License-Identifier: Apache-2.0
//
// Patches: the rows of the matrix that turns a convolution into a product. Row m holds the
// kernel_h * kernel_w * (input_c / groups) activations under output pixel m, in the order of the
// weights, taps outside the image filled with the input zero point. Only as many rows exist at a
// time as fit a scratch block; the whole matrix never does.
#pragma once

#include <cstdint>

#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/gemm/gemm.h"

namespace atollrt {

class Patches {
 public:
  Patches() = default;
  // `pad_row` holds kernel_w * input_c / groups input zero points; it is borrowed.
  Patches(const ConvShape& shape, ByteType type, const GemmKernel* kernel, const uint8_t* pad_row);

  // Elements of a row.
  int64_t depth() const { return depth_; }
  // Bytes from one row to the next in a block.
  int64_t row_stride() const { return row_stride_; }

  // Copies the patches of the output pixels [first, first + rows), counted through the batch, into
  // `block`, which holds rows * row_stride() + kLhsSlack bytes.
  void Copy(const uint8_t* input, int32_t group, int64_t first, int32_t rows, uint8_t* block) const;

 private:
  // Output pixels [x_begin, x_end) of one output row; the first goes to `target`.
  struct Segment {
    const uint8_t* image;  // of this batch element, at the first channel of the group
    const uint8_t* input_end;
    int32_t y;
    int32_t x_begin, x_end;
    uint8_t* target;
  };
  void CopySegment(const Segment& segment) const;
  void CopyInterior(const Segment& segment) const;
  void CopyTaps(const Segment& segment) const;
  void CopyRun(const Segment& segment, int32_t ky, int32_t kx, int64_t count) const;
  void Fill(const Segment& segment, int32_t ky, int32_t kx, int64_t count) const;

  ConvShape shape_;
  ByteType type_ = ByteType::kInt8;
  const GemmKernel* kernel_ = nullptr;
  const uint8_t* pad_row_ = nullptr;
  int64_t group_channels_ = 0;
  int64_t depth_ = 0;
  int64_t row_stride_ = 0;
  bool is_whole_pixels_ = false;  // patches are the input's pixels, in order
  bool is_packed_ = false;        // and their rows touch, so that a block is one run of bytes
  bool taps_touch_ = false;       // the taps of one kernel row are neighbours in memory
  // Pixels [interior_begin_, interior_end_) of an output row see no tap left or right of the image.
  int32_t interior_begin_ = 0, interior_end_ = 0;
};

}  // namespace atollrt
