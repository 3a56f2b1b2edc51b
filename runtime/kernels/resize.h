// SPDX-License-Identifier: Apache-2.0
//
// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, NHWC (docs/quantization.md §9). Both are separable:
// a tap per output row and per output column says which input cells it mixes, so the taps are
// computed once and an output row is made from two input rows.
//
// Bilinear weights follow TensorFlow Lite, which uses two arithmetics: 10-bit fixed point with one
// rounding for int8 and int16, float32 for uint8 and float32. They do not agree, on purpose.
#pragma once

#include <cstdint>

#include "runtime/base/buffer.h"
#include "runtime/base/status.h"
#include "runtime/kernels/thread_pool.h"

namespace atollrt {

// Which points of input and output lie on each other.
enum class ResizeMode : uint8_t { kCorners, kAlignCorners, kHalfPixelCenters };

// All sizes at least 1.
struct ResizeParams {
  int32_t batch = 1;
  int32_t input_h = 1, input_w = 1, channels = 1;
  int32_t output_h = 1, output_w = 1;
  ResizeMode mode = ResizeMode::kCorners;
};

// The same values in both tensors' codes: no quantization enters.
enum class ResizeType : uint8_t { kInt8, kUInt8, kInt16, kFloat32 };

// Immutable after Prepare; several threads may run one object, each with its own scratch.
class BilinearResize {
 public:
  // kResourceExhausted if the taps do not fit memory.
  static Result<BilinearResize> Prepare(const ResizeParams& params, ResizeType type);

  // Bytes of scratch that Run needs with a pool of `threads` threads.
  size_t ScratchBytes(int threads) const;

  // `input` is [batch, input_h, input_w, channels] and may be unaligned; `output` is [batch,
  // output_h, output_w, channels], aligned to its element and not overlapping. `scratch` is
  // aligned to 8 bytes. `pool` may be nullptr.
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;

 private:
  template <typename T, typename Blend>
  void RunRows(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;
  size_t RowScratchBytes() const;

  ResizeParams params_;
  ResizeType type_ = ResizeType::kInt8;
  Buffer rows_, columns_;  // taps
};

// Copies whole cells, so the element type does not matter.
class NearestResize {
 public:
  // A cell is the `cell_bytes` = channels * element size of one position.
  static Result<NearestResize> Prepare(const ResizeParams& params, int64_t cell_bytes);

  // Shapes as for BilinearResize::Run; any alignment serves. `pool` may be nullptr.
  void Run(const uint8_t* input, uint8_t* output, ThreadPool* pool) const;

 private:
  ResizeParams params_;
  int64_t cell_bytes_ = 0;
  Buffer rows_, columns_;  // input index of every output index, int32
};

}  // namespace atollrt
