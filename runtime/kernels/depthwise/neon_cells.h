// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolution on NEON, for inclusion by its ISA files only, which say how cells are
// multiplied. A cell is four taps of signed bytes for each of 16 channels; uint8 activations are
// moved by -128.
//
// `Products` is a class with
//   kPixels              output pixels at a time
//   kSums                vectors of sums per pixel
//   Add(sums, cell, w)   adds the products of a cell, as 4 vectors, to the sums of one pixel
//   Total(sums, i)       those of channels 4 i to 4 i + 3
#pragma once

#include <arm_neon.h>

#include "runtime/kernels/depthwise/depthwise_kernel.h"
#include "runtime/kernels/quantization/requantize_neon.h"

namespace atollrt {
namespace {

constexpr int32_t kTaps = 4;
constexpr int kVectors = 4;  // of a cell, and of a block's sums

inline void Interleave(const InterleaveArgs& args) {
  const uint8x16_t flip = vdupq_n_u8(args.type == ByteType::kInt8 ? 0 : 0x80);
  for (int32_t c = 0; c < args.channels; c += kDepthwiseBlock) {
    const uint8_t* source[kTaps];
    for (int t = 0; t < kTaps; ++t) source[t] = args.taps[t].pixels + c;
    uint8_t* cell = args.cells + c / kDepthwiseBlock * args.block_stride;
    for (int32_t p = 0; p < args.pixels; ++p, cell += kDepthwiseCellBytes) {
      uint8x16_t tap[kTaps];
#pragma GCC unroll 4
      for (int t = 0; t < kTaps; ++t) {
        tap[t] = veorq_u8(Load16Before(source[t], args.taps[t].end), flip);
        source[t] += args.taps[t].stride;
      }
      // Pairs of taps, then pairs of pairs.
      const uint16x8_t low01 = vreinterpretq_u16_u8(vzip1q_u8(tap[0], tap[1]));
      const uint16x8_t high01 = vreinterpretq_u16_u8(vzip2q_u8(tap[0], tap[1]));
      const uint16x8_t low23 = vreinterpretq_u16_u8(vzip1q_u8(tap[2], tap[3]));
      const uint16x8_t high23 = vreinterpretq_u16_u8(vzip2q_u8(tap[2], tap[3]));
      vst1q_u8(cell, vreinterpretq_u8_u16(vzip1q_u16(low01, low23)));
      vst1q_u8(cell + 16, vreinterpretq_u8_u16(vzip2q_u16(low01, low23)));
      vst1q_u8(cell + 32, vreinterpretq_u8_u16(vzip1q_u16(high01, high23)));
      vst1q_u8(cell + 48, vreinterpretq_u8_u16(vzip2q_u16(high01, high23)));
    }
  }
}

// One block of 16 channels over a row of output pixels.
struct BlockArgs {
  const DepthwiseArgs* all;
  const DepthwiseBlock* block;
  const uint8_t* cells;
  int32_t channel;
  int32_t channels;
};

inline int8x16_t LoadSigned(const uint8_t* from) { return vreinterpretq_s8_u8(vld1q_u8(from)); }

// The sums of products of output pixels whose first cells are given.
template <typename Products>
inline void Accumulate(const DepthwiseBlock& block, const uint8_t* const cells[Products::kPixels],
                       int32x4_t totals[Products::kPixels][kVectors]) {
  int32x4_t sums[Products::kPixels][Products::kSums];
#pragma GCC unroll 4
  for (int p = 0; p < Products::kPixels; ++p) {
#pragma GCC unroll 8
    for (int i = 0; i < Products::kSums; ++i) sums[p][i] = vdupq_n_s32(0);
  }
  for (int64_t g = 0; g < block.tap_groups; ++g) {
    const int64_t offset = block.offsets[g];
    int8x16_t weight[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      weight[i] = LoadSigned(block.weights + g * kDepthwiseCellBytes + 16 * i);
    }
#pragma GCC unroll 4
    for (int p = 0; p < Products::kPixels; ++p) {
      int8x16_t cell[kVectors];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) cell[i] = LoadSigned(cells[p] + offset + 16 * i);
      Products::Add(sums[p], cell, weight);
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < Products::kPixels; ++p) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) totals[p][i] = Products::Total(sums[p], i);
  }
}

template <typename Products, Epilogue kEpilogue>
void RunBlock(const BlockArgs& block) {
  constexpr int kPixels = Products::kPixels;
  const DepthwiseArgs& args = *block.all;
  const OutputColumns& columns = *args.columns;
  const bool vectorizable = columns.wide_vectorizable[block.channel / OutputColumns::kBlock] != 0;
  const Bytes128 to_bytes = LoadBytes(columns.zero_point, columns.clamp);
  Scale128 scale[kVectors];
  int32x4_t bias[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    scale[i] = LoadScale<kEpilogue>(columns, block.channel + 4 * i);
    bias[i] = vld1q_s32(columns.bias + block.channel + 4 * i);
  }
  for (int32_t first = 0; first < args.pixels; first += kPixels) {
    // Past the end, the last pixel is computed again.
    int32_t pixel[kPixels];
    const uint8_t* cells[kPixels];
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      pixel[p] = first + p < args.pixels ? first + p : args.pixels - 1;
      cells[p] = block.cells + pixel[p] * args.pixel_step;
    }
    int32x4_t total[kPixels][kVectors];
    Accumulate<Products>(*block.block, cells, total);
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      int32x4_t* const v = total[p];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) v[i] = vaddq_s32(v[i], bias[i]);
      uint8_t* const output = args.output + pixel[p] * args.output_stride + block.channel;
      if (!vectorizable) {
        alignas(16) int32_t plain[kDepthwiseBlock];
        for (int i = 0; i < kVectors; ++i) vst1q_s32(plain + 4 * i, v[i]);
        RequantizePlain(columns, {plain, kDepthwiseBlock, 1, block.channel, block.channels, output,
                                  args.output_stride});
        continue;
      }
      StoreBytes(
          output,
          ToBytes(Rescale<kEpilogue>(v[0], scale[0]), Rescale<kEpilogue>(v[1], scale[1]),
                  Rescale<kEpilogue>(v[2], scale[2]), Rescale<kEpilogue>(v[3], scale[3]), to_bytes),
          block.channels);
    }
  }
}

template <typename Products>
void Run(const DepthwiseArgs& args) {
  for (int32_t b = 0; b * kDepthwiseBlock < args.channels; ++b) {
    const int32_t left = args.channels - b * kDepthwiseBlock;
    const BlockArgs block = {&args, args.blocks + b, args.cells + b * args.block_stride,
                             args.first_channel + b * kDepthwiseBlock,
                             left < kDepthwiseBlock ? left : kDepthwiseBlock};
    if (args.columns->mode == RequantizeMode::kDouble) {
      RunBlock<Products, Epilogue::kDouble>(block);
    } else if (args.columns->vectorizable[block.channel / OutputColumns::kBlock] == 0) {
      RunBlock<Products, Epilogue::kWide>(block);
    } else {
      RunBlock<Products, Epilogue::kFixedPoint>(block);
    }
  }
}

template <typename Products>
constexpr DepthwiseKernel NeonDepthwise(const char* name) {
  return {.name = name,
          .taps_per_cell = kTaps,
          .element_bytes = 1,
          .int8_input_offset = 0,
          .uint8_input_offset = -128,
          .interleave = Interleave,
          .run = Run<Products>,
          .run_rows = nullptr};
}

}  // namespace
}  // namespace atollrt
