// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolution on 256-bit registers, for inclusion by ISA files only, which say how cells
// are multiplied: `Products` is a class with Add(sums, cell, weight), which adds the products of
// half a cell to the sums of 8 channels.
#pragma once

#include <immintrin.h>

#include "runtime/kernels/depthwise/depthwise_kernel.h"
#include "runtime/kernels/quantization/requantize_avx2.h"

namespace atollrt {
namespace {

constexpr int32_t kPixels = 4;  // at a time; 4 * 8 output bytes fill a register
constexpr int32_t kVector = 8;  // channels of a register

// 16 bytes at `from`, of which those at or past `end` are not read and yield 0.
__m128i Load16Before(const uint8_t* from, const uint8_t* end) {
  if (end - from >= 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  alignas(16) uint8_t bytes[16] = {};
  for (int i = 0; i < 16 && from + i < end; ++i) bytes[i] = from[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
}

// Half a block, 8 channels, over a row of output pixels.
struct VectorArgs {
  const DepthwiseArgs* all;
  const DepthwiseBlock* block;
  const uint8_t* cells;
  int64_t half;  // byte offset of the half in a cell
  int32_t channel;
  int32_t channels;
};

// The sums of kPixels output pixels, whose first cells are given.
template <typename Products>
inline void Accumulate(const VectorArgs& vector, const uint8_t* const cells[kPixels], __m256i bias,
                       __m256i sums[kPixels]) {
  const DepthwiseBlock& block = *vector.block;
#pragma GCC unroll 4
  for (int p = 0; p < kPixels; ++p) sums[p] = bias;
  for (int64_t g = 0; g < block.tap_groups; ++g) {
    const int64_t offset = block.offsets[g] + vector.half;
    const __m256i weight = Load256(block.weights + g * kDepthwiseCellBytes + vector.half);
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      sums[p] = Products::Add(sums[p], Load256(cells[p] + offset), weight);
    }
  }
}

template <typename Products, Epilogue kEpilogue>
void RunVector(const VectorArgs& vector) {
  const DepthwiseArgs& args = *vector.all;
  const OutputColumns& columns = *args.columns;
  const Scale256 scale = LoadScale<kEpilogue>(columns, vector.channel);
  const Bytes256 to_bytes = LoadBytes(columns.zero_point, columns.clamp);
  const __m256i bias = Load256(columns.bias + vector.channel);
  const bool vectorizable = columns.wide_vectorizable[vector.channel / OutputColumns::kBlock] != 0;
  for (int32_t first = 0; first < args.pixels; first += kPixels) {
    // Past the end, the last pixel is computed again.
    int32_t pixel[kPixels];
    const uint8_t* cells[kPixels];
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      pixel[p] = first + p < args.pixels ? first + p : args.pixels - 1;
      cells[p] = vector.cells + pixel[p] * args.pixel_step;
    }
    __m256i sum[kPixels];
    Accumulate<Products>(vector, cells, bias, sum);
    uint8_t* const output = args.output + vector.channel;
    if (!vectorizable) {
      alignas(32) int32_t plain[kPixels * kVector];
      for (int p = 0; p < kPixels; ++p) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(plain + kVector * p), sum[p]);
      }
      const int32_t rows = args.pixels - first < kPixels ? args.pixels - first : kPixels;
      RequantizePlain(columns, {plain, kVector, rows, vector.channel, vector.channels,
                                output + first * args.output_stride, args.output_stride});
      continue;
    }
    alignas(32) uint8_t bytes[32];
    _mm256_store_si256(
        reinterpret_cast<__m256i*>(bytes),
        ToBytes(Rescale<kEpilogue>(sum[0], scale), Rescale<kEpilogue>(sum[1], scale),
                Rescale<kEpilogue>(sum[2], scale), Rescale<kEpilogue>(sum[3], scale), to_bytes));
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      uint8_t* to = output + pixel[p] * args.output_stride;
      if (vector.channels == kVector) {
        __builtin_memcpy(to, bytes + kVector * p, kVector);
      } else {
        for (int32_t c = 0; c < vector.channels; ++c) to[c] = bytes[kVector * p + c];
      }
    }
  }
}

template <typename Products>
void Run(const DepthwiseArgs& args) {
  for (int32_t c = 0; c < args.channels; c += kVector) {
    const int32_t block = c / kDepthwiseBlock;
    const int64_t half = c % kDepthwiseBlock * (kDepthwiseCellBytes / kDepthwiseBlock);
    const int32_t left = args.channels - c;
    const VectorArgs vector = {
        &args, args.blocks + block,    args.cells + block * args.block_stride,
        half,  args.first_channel + c, left < kVector ? left : kVector};
    if (args.columns->mode == RequantizeMode::kDouble) {
      RunVector<Products, Epilogue::kDouble>(vector);
    } else if (args.columns->vectorizable[vector.channel / OutputColumns::kBlock] == 0) {
      RunVector<Products, Epilogue::kWide>(vector);
    } else {
      RunVector<Products, Epilogue::kFixedPoint>(vector);
    }
  }
}

}  // namespace
}  // namespace atollrt
