// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/depthwise/depthwise_kernel.h"

#include <algorithm>

#include "runtime/kernels/cpu_features.h"

namespace atollrt {

const DepthwiseKernel& ChooseDepthwise(uint32_t features) {
#define ATOLL_DEPTHWISE_KERNEL(name, needed) \
  if (Supports(features, needed)) return name;
#include "runtime/kernels/depthwise/kernels.inc"
#undef ATOLL_DEPTHWISE_KERNEL
  return DepthwisePlain;
}

// The plain kernel: cells of two taps, int16.
namespace {

constexpr int32_t kTaps = 2;

void Interleave(const InterleaveArgs& args) {
  for (int32_t c = 0; c < args.channels; ++c) {
    uint8_t* cells = args.cells + c / kDepthwiseBlock * args.block_stride;
    for (int32_t p = 0; p < args.pixels; ++p) {
      int16_t* cell = reinterpret_cast<int16_t*>(cells + p * kDepthwiseCellBytes);
      for (int32_t t = 0; t < kTaps; ++t) {
        cell[c % kDepthwiseBlock * kTaps + t] = static_cast<int16_t>(
            ByteValue(args.taps[t].pixels[p * args.taps[t].stride + c], args.type));
      }
    }
  }
}

void Run(const DepthwiseArgs& args) {
  for (int32_t first = 0; first < args.channels; first += kDepthwiseBlock) {
    const DepthwiseBlock& block = args.blocks[first / kDepthwiseBlock];
    const int16_t* weights = reinterpret_cast<const int16_t*>(block.weights);
    const uint8_t* cells = args.cells + first / kDepthwiseBlock * args.block_stride;
    const int32_t channel = args.first_channel + first;
    for (int32_t p = 0; p < args.pixels; ++p) {
      int32_t sums[kDepthwiseBlock] = {};  // at most 255 * 255 times the taps: fits, or wraps
      for (int64_t g = 0; g < block.tap_groups; ++g) {
        const int16_t* cell =
            reinterpret_cast<const int16_t*>(cells + block.offsets[g] + p * args.pixel_step);
        const int16_t* weight = weights + g * kDepthwiseBlock * kTaps;
        for (int32_t c = 0; c < kDepthwiseBlock; ++c) {
          const int32_t products =
              cell[2 * c] * weight[2 * c] + cell[2 * c + 1] * weight[2 * c + 1];
          sums[c] = static_cast<int32_t>(static_cast<uint32_t>(sums[c]) +
                                         static_cast<uint32_t>(products));
        }
      }
      for (int32_t c = 0; c < kDepthwiseBlock; ++c) {
        sums[c] = static_cast<int32_t>(static_cast<uint32_t>(sums[c]) +
                                       static_cast<uint32_t>(args.columns->bias[channel + c]));
      }
      RequantizePlain(*args.columns, {.accumulators = sums,
                                      .accumulator_stride = kDepthwiseBlock,
                                      .rows = 1,
                                      .first = channel,
                                      .count = std::min(kDepthwiseBlock, args.channels - first),
                                      .output = args.output + p * args.output_stride + channel,
                                      .output_stride = args.output_stride});
    }
  }
}

}  // namespace

const DepthwiseKernel DepthwisePlain = {
    .name = "DepthwisePlain",
    .taps_per_cell = kTaps,
    .element_bytes = 2,
    .interleave = Interleave,
    .run = Run,
    .run_rows = nullptr,
};

}  // namespace atollrt
