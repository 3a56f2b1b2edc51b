// SPDX-License-Identifier: Apache-2.0
//
// Part of cells.h: 256-bit registers, half a block of channels of four pixels at a time.
#pragma once

#include "runtime/kernels/depthwise/cells.h"

namespace atollrt {
namespace {

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
          .run = Run<X86Products<ByteSum>>,
          .run_rows = nullptr};
}
#endif

}  // namespace
}  // namespace atollrt
