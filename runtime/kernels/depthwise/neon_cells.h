// SPDX-License-Identifier: Apache-2.0
//
// Part of cells.h: NEON. A cell is four taps of signed bytes for each of 16 channels; uint8
// activations are moved by -128.
#pragma once

#include "runtime/kernels/depthwise/cells.h"

namespace atollrt {
namespace {

// What `Products` have in common: a whole block of channels at a time.
struct BlockProducts {
  using Cell = int8x16_t;
  static constexpr int kVectors = 4;
  static int8x16_t Load(const uint8_t* from) { return vreinterpretq_s8_u8(vld1q_u8(from)); }
};

template <typename Products>
constexpr DepthwiseKernel NeonDepthwise(const char* name) {
  return {.name = name,
          .taps_per_cell = 4,
          .element_bytes = 1,
          .int8_input_offset = 0,
          .uint8_input_offset = -128,
          .interleave = InterleaveFourTaps<ByteType::kUInt8>,
          .run = Run<Products>,
          .run_rows = nullptr};
}

}  // namespace
}  // namespace atollrt
