// SPDX-License-Identifier: Apache-2.0
//
// Part of cells.h: 256-bit registers, half a block of channels of four pixels at a time. `Sum` is a
// class with Add(sums, cell, weight), which adds the products of half a cell to sums of 8 channels.
#pragma once

#include "runtime/kernels/depthwise/cells.h"

namespace atollrt {
namespace {

template <typename Sum>
struct Products256 {
  using Cell = __m256i;
  static constexpr int kPixels = 4;
  static constexpr int kVectors = 1;
  static constexpr int kSums = 1;
  static __m256i Load(const uint8_t* from) { return LoadVector(from); }
  static void Start(__m256i bias, __m256i sums[1]) { sums[0] = bias; }
  static void Add(__m256i sums[1], __m256i cell, __m256i weight) {
    sums[0] = Sum::Add(sums[0], cell, weight);
  }
  static __m256i Total(const __m256i sums[1]) { return sums[0]; }
};

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
          .interleave = InterleaveFourTaps<ByteType::kInt8>,
          .run = Run<Products256<ByteSum>>,
          .run_rows = nullptr};
}
#endif

}  // namespace
}  // namespace atollrt
