// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/conv2d_float.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/patch_gather.h"

namespace atollrt {
namespace {

// A tile of sums that stays in the 16 registers of four floats that every 64-bit CPU has.
constexpr int32_t kPanel = 8;
constexpr int32_t kTileRows = 4;

int64_t Panels(const ConvShape& s) { return DivideRoundingUp(s.output_c / s.groups, kPanel); }

// sums[r][c] = sum over k of patches[r][k] * panel[k][c].
void MultiplyTile(const float* patches, const float* panel, int64_t depth,
                  float (&sums)[kTileRows][kPanel]) {
  float tile[kTileRows][kPanel] = {};
  for (int64_t k = 0; k < depth; ++k, panel += kPanel) {
    for (int r = 0; r < kTileRows; ++r) {
      const float x = patches[r * depth + k];
      for (int c = 0; c < kPanel; ++c) tile[r][c] += x * panel[c];
    }
  }
  std::memcpy(sums, tile, sizeof(tile));
}

void PackPanels(const ConvShape& s, const uint8_t* weights, float* packed) {
  const int64_t depth = FilterDepth(s);
  const int64_t group_out = s.output_c / s.groups;
  for (int64_t group = 0; group < s.groups; ++group) {
    for (int64_t column = 0; column < Panels(s) * kPanel; ++column) {
      float* target = packed + column / kPanel * kPanel * depth + column % kPanel;
      const uint8_t* source = weights + (group * group_out + column) * depth * 4;
      for (int64_t k = 0; k < depth; ++k) {
        target[k * kPanel] = column < group_out ? LoadLittleEndian<float>(source + 4 * k) : 0.0f;
      }
    }
    packed += Panels(s) * kPanel * depth;
  }
}

}  // namespace

Result<Conv2DFloat> Conv2DFloat::Prepare(const Conv2DFloatParams& params, CpuFeatures) {
  Conv2DFloat conv;
  const ConvShape& s = params.shape;
  const bool is_conv = params.kind == FilterKind::kConv;
  const int64_t count = is_conv ? s.groups * Panels(s) * kPanel * FilterDepth(s)
                                : int64_t{s.kernel_h} * s.kernel_w * s.output_c;
  ATOLL_ASSIGN_OR_RETURN(conv.packed_,
                         Buffer::Allocate(static_cast<size_t>(count + s.output_c) * sizeof(float)));
  float* packed = reinterpret_cast<float*>(conv.packed_.data());
  if (is_conv) {
    PackPanels(s, params.weights, packed);
  } else {
    std::memcpy(packed, params.weights, static_cast<size_t>(count) * sizeof(float));
  }
  if (params.bias != nullptr) {
    std::memcpy(packed + count, params.bias, static_cast<size_t>(s.output_c) * sizeof(float));
  }
  conv.bias_ = packed + count;
  conv.params_ = params;
  conv.params_.weights = nullptr;
  conv.params_.bias = nullptr;
  return conv;
}

// Blocks that share L1 with a panel of weights.
int32_t Conv2DFloat::BlockRows() const {
  constexpr int64_t kBlockBytes = 16 << 10;
  const int64_t tile_bytes = kTileRows * FilterDepth(params_.shape) * 4;
  return kTileRows * static_cast<int32_t>(std::clamp<int64_t>(kBlockBytes / tile_bytes, 1, 16));
}

size_t Conv2DFloat::WorkerScratchBytes() const {
  if (params_.kind == FilterKind::kDepthwise) return 0;
  const size_t elements =
      static_cast<size_t>(BlockRows()) * static_cast<size_t>(FilterDepth(params_.shape));
  return AlignUp(elements * sizeof(float), Buffer::kAlignment);
}

size_t Conv2DFloat::ScratchBytes(int threads) const {
  return static_cast<size_t>(threads) * WorkerScratchBytes();
}

void Conv2DFloat::ConvolveBlock(const uint8_t* input, int64_t pixel, int32_t rows, float* patches,
                                float* output) const {
  const ConvShape& s = params_.shape;
  const int64_t depth = FilterDepth(s);
  const int32_t group_out = s.output_c / s.groups;
  const float* panel = weights();
  for (int32_t group = 0; group < s.groups; ++group) {
    for (int32_t r = 0; r < rows; ++r) {
      GatherPatch(s, input, group, pixel + r, patches + r * depth);
    }
    // The last tile may be short; what its other rows hold does not matter.
    for (int32_t column = 0; column < group_out; column += kPanel, panel += kPanel * depth) {
      const int32_t columns = std::min(kPanel, group_out - column);
      for (int32_t row = 0; row < rows; row += kTileRows) {
        float sums[kTileRows][kPanel];
        MultiplyTile(patches + row * depth, panel, depth, sums);
        for (int32_t r = 0; r < std::min(kTileRows, rows - row); ++r) {
          const int32_t channel = group * group_out + column;
          float* out = output + int64_t{row + r} * s.output_c + channel;
          for (int32_t c = 0; c < columns; ++c) {
            out[c] = params_.clamp(sums[r][c] + bias_[channel + c]);
          }
        }
      }
    }
  }
}

void Conv2DFloat::ConvolveDepthwise(const uint8_t* input, int64_t pixel, float* output) const {
  const ConvShape& s = params_.shape;
  AccumulateDepthwise<float>(s, input, weights(), pixel, output);
  for (int32_t c = 0; c < s.output_c; ++c) {
    output[c] = params_.clamp(output[c] + bias_[c]);
  }
}

void Conv2DFloat::Run(const uint8_t* input, uint8_t* output, uint8_t* scratch,
                      ThreadPool* pool) const {
  const ConvShape& s = params_.shape;
  const int64_t pixels = OutputPixels(s);
  const int threads = pool == nullptr ? 1 : pool->threads();
  const int32_t block = params_.kind == FilterKind::kConv ? BlockRows() : 1;
  ParallelFor(pool, threads, [&](int task, int worker) {
    float* patches =
        reinterpret_cast<float*>(scratch + static_cast<size_t>(worker) * WorkerScratchBytes());
    const int64_t end = pixels * (task + 1) / threads;
    for (int64_t pixel = pixels * task / threads; pixel < end; pixel += block) {
      float* out = reinterpret_cast<float*>(output) + pixel * s.output_c;
      if (params_.kind == FilterKind::kDepthwise) {
        ConvolveDepthwise(input, pixel, out);
      } else {
        const int32_t rows = static_cast<int32_t>(std::min<int64_t>(block, end - pixel));
        ConvolveBlock(input, pixel, rows, patches, out);
      }
    }
  });
}

}  // namespace atollrt
