// SPDX-License-Identifier: Apache-2.0
//
// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, NHWC (docs/quantization.md §9). Both are separable:
// a tap per output row and per output column says which input cells it mixes, so an output row is
// made from two input rows. Any band of output rows can be made from those input rows alone, with
// the bytes that it has in the whole image.
//
// Bilinear weights follow TensorFlow Lite, which uses two arithmetics: 10-bit fixed point with one
// rounding for int8 and int16, float32 for uint8 and float32. They do not agree, on purpose.
//
// Pure functions, thread-safe; they allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/row_loops/row_loops.h"

namespace atollrt {

// Which points of input and output lie on each other.
enum class ResizeMode : uint8_t { kCorners, kAlignCorners, kHalfPixelCenters };

// Whole images. All sizes at least 1.
struct ResizeParams {
  int32_t batch = 1;
  int32_t input_h = 1, input_w = 1, channels = 1;
  int32_t output_h = 1, output_w = 1;
  ResizeMode mode = ResizeMode::kCorners;
};

// The same values in both tensors' codes: no quantization enters.
enum class ResizeType : uint8_t { kInt8, kUInt8, kInt16, kFloat32 };

// The input rows that are there and the output rows that are wanted, of each image.
struct ResizeRows {
  int32_t first = 0, count = 0;
};
struct ResizeBand {
  ResizeRows input, output;
};
inline ResizeBand WholeImages(const ResizeParams& params) {
  return {{0, params.input_h}, {0, params.output_h}};
}

// The input rows, at least 1, from which output rows (at least 1) are made.
ResizeRows BilinearInputRows(const ResizeParams& params, ResizeType type, ResizeRows output);
ResizeRows NearestInputRows(const ResizeParams& params, ResizeRows output);

// Bytes of scratch that ResizeBilinear takes with a pool of `threads` threads.
size_t BilinearScratchBytes(const ResizeParams& params, ResizeType type, int threads);

// `input` is [batch, band.input.count, input_w, channels] and may be unaligned; `output` is [batch,
// band.output.count, output_w, channels], aligned to its element and not overlapping. The band's
// input has the rows that its output is made from. `scratch` is aligned to 64 bytes; without it
// (nullptr) it takes longer. `pool` may be nullptr.
void ResizeBilinear(const ResizeParams& params, ResizeType type, const RowLoops& loops,
                    const ResizeBand& band, const uint8_t* input, uint8_t* output, uint8_t* scratch,
                    ThreadPool* pool);

// Copies whole cells, so the element type does not matter: a cell is the `cell_bytes` = channels *
// element size of one position. Otherwise as ResizeBilinear, but any alignment serves.
void ResizeNearest(const ResizeParams& params, int64_t cell_bytes, const ResizeBand& band,
                   const uint8_t* input, uint8_t* output, ThreadPool* pool);

}  // namespace atollrt
