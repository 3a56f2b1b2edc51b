// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolution on 256-bit registers, for inclusion by ISA files only, which say how cells
// are multiplied. `Sum` is a class with Add(sums, cell, weight), which adds the products of all
// taps of 8 channels. The sums of a part of a line wait in memory, and become bytes together.
#pragma once

#include "runtime/kernels/depthwise/cells.h"
#include "runtime/kernels/quantization/store_sums256.h"

namespace atollrt {
namespace {

constexpr int32_t kHeldPixels = 32;
constexpr int64_t kHalfCellBytes = kDepthwiseCellBytes / 2;  // of 8 channels

// The sums of 8 channels of `pixels` pixels, 16 apart. kGroups is block.tap_groups, or 0 for any
// number.
template <typename Sum, int kGroups>
void SumHalf(const DepthwiseBlock& block, const uint8_t* cells, int64_t pixel_step,
             const int32_t* bias, int32_t pixels, int32_t* sums) {
  const __m256i first = LoadVector(bias);
  if constexpr (kGroups > 0) {
    __m256i weights[kGroups];
    int64_t offsets[kGroups];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      weights[g] = LoadVector(block.weights + g * kDepthwiseCellBytes);
      offsets[g] = block.offsets[g];
    }
    for (int32_t p = 0; p < pixels; ++p) {
      __m256i sum = first;
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        sum = Sum::Add(sum, LoadVector(cells + offsets[g]), weights[g]);
        asm("" : "+x"(sum));  // in this order: all products first would not fit the registers
      }
      StoreVector(sums, sum);
      cells += pixel_step;
      sums += OutputColumns::kBlock;
    }
    return;
  }
  constexpr int kAtOnce = 4;
  for (int32_t p = 0; p < pixels; p += kAtOnce) {
    // Past the end, the last pixel is computed again.
    const uint8_t* from[kAtOnce];
    __m256i sum[kAtOnce];
#pragma GCC unroll 4
    for (int i = 0; i < kAtOnce; ++i) {
      from[i] = cells + (p + i < pixels ? p + i : pixels - 1) * pixel_step;
      sum[i] = first;
    }
    for (int64_t g = 0; g < block.tap_groups; ++g) {
      const __m256i weight = LoadVector(block.weights + g * kDepthwiseCellBytes);
      const int64_t offset = block.offsets[g];
#pragma GCC unroll 4
      for (int i = 0; i < kAtOnce; ++i) {
        sum[i] = Sum::Add(sum[i], LoadVector(from[i] + offset), weight);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kAtOnce; ++i) StoreVector(sums + OutputColumns::kBlock * (p + i), sum[i]);
  }
}

// Filters of 3x3 in kGroups groups; others in any number.
template <typename Sum, int kGroups>
void Run256(const DepthwiseArgs& args) {
  alignas(32) int32_t sums[kHeldPixels * kDepthwiseBlock];
  for (int32_t c = 0; c < args.channels; c += kDepthwiseBlock) {
    const DepthwiseBlock& block = args.blocks[c / kDepthwiseBlock];
    const int32_t left = args.channels - c;
    const int32_t channels = left < kDepthwiseBlock ? left : kDepthwiseBlock;
    const int32_t channel = args.first_channel + c;
    const uint8_t* cells = args.cells + c / kDepthwiseBlock * args.block_stride;
    for (int32_t pixel = 0; pixel < args.pixels; pixel += kHeldPixels) {
      const int32_t rest = args.pixels - pixel;
      const int32_t pixels = rest < kHeldPixels ? rest : kHeldPixels;
      for (int32_t half = 0; half * kLanes < channels; ++half) {
        DepthwiseBlock part = block;
        part.weights += half * kHalfCellBytes;
        const auto sum = block.tap_groups == kGroups ? SumHalf<Sum, kGroups> : SumHalf<Sum, 0>;
        sum(part, cells + half * kHalfCellBytes, args.pixel_step,
            args.columns->bias + channel + half * kLanes, pixels, sums + half * kLanes);
      }
      StoreSums256(*args.columns, {.accumulators = sums,
                                   .accumulator_stride = kDepthwiseBlock,
                                   .rows = pixels,
                                   .first = channel,
                                   .count = channels,
                                   .output = args.output + pixel * args.output_stride + channel,
                                   .output_stride = args.output_stride});
      cells += pixels * args.pixel_step;
    }
  }
}

#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
// Cells of four taps of one byte: one VPDPBUSD adds four products for each of 8 channels. It wants
// unsigned activations, hence int8 ones are moved by 128, and signed weights.
struct ByteSum {
  static __m256i Add(__m256i sums, __m256i cell, __m256i weight) {
    return Dpbusd256(sums, cell, weight);
  }
};

constexpr DepthwiseKernel Vnni256Depthwise(const char* name) {
  return {.name = name,
          .taps_per_cell = 4,
          .element_bytes = 1,
          .int8_input_offset = 128,
          .fit = FitFloatColumnAvx2,
          .interleave = InterleaveFourTaps<ByteType::kInt8>,
          .run = Run256<ByteSum, 3>,
          .run_rows = nullptr};
}
#endif

}  // namespace
}  // namespace atollrt
