// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/conv2d_float.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/patch_gather.h"

namespace atollrt {
namespace {

// Four floats, which every 64-bit CPU multiplies at once. Left to itself, the compiler finds other
// vectors in the loops below, a quarter as fast.
typedef float Lanes __attribute__((vector_size(16)));
constexpr int32_t kLanes = 4;

// A tile of sums stays in eight registers of Lanes: of four rows and one panel of columns, or of
// one row and four panels.
constexpr int32_t kPanel = 2 * kLanes;
constexpr int32_t kTileRows = 4;
constexpr int32_t kTilePanels = 4;

int64_t Panels(const ConvShape& s) { return DivideRoundingUp(s.output_c / s.groups, kPanel); }

// Where the sums of a tile go: [rows][columns], the first ones.
struct TileTarget {
  int32_t rows, columns;
  const float* bias;  // [columns]
  ValueClamp<float> clamp;
  float* output;
  int64_t row_stride;
};

// output[r][c] = clamp(sum over k of patches[r][k] * panels[c / kPanel][k][c % kPanel] + bias[c]).
// Reads kRows rows of patches, whatever they hold beyond target.rows.
template <int kRows, int kPanels>
void MultiplyTile(const float* patches, const float* panels, int64_t depth,
                  const TileTarget& target) {
  Lanes tile[kRows][2 * kPanels] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Lanes weights[2 * kPanels];
    for (int p = 0; p < kPanels; ++p) {
      std::memcpy(weights + 2 * p, panels + (p * depth + k) * kPanel, kPanel * sizeof(float));
    }
    for (int r = 0; r < kRows; ++r) {
      const float x = patches[r * depth + k];
      for (int i = 0; i < 2 * kPanels; ++i) tile[r][i] += x * weights[i];
    }
  }
  float sums[kRows][kPanels * kPanel];
  static_assert(sizeof(sums) == sizeof(tile));
  std::memcpy(sums, tile, sizeof(sums));
  for (int32_t r = 0; r < std::min(kRows, target.rows); ++r) {
    float* out = target.output + r * target.row_stride;
    for (int32_t c = 0; c < target.columns; ++c) out[c] = target.clamp(sums[r][c] + target.bias[c]);
  }
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
  const float* panels = weights();
  // A dense layer of one row would waste most of a tile of four.
  const int32_t step = rows == 1 ? kTilePanels * kPanel : kPanel;
  for (int32_t group = 0; group < s.groups; ++group, panels += Panels(s) * kPanel * depth) {
    for (int32_t r = 0; r < rows; ++r) {
      GatherPatch(s, input, group, pixel + r, patches + r * depth);
    }
    for (int32_t column = 0; column < group_out;) {
      const int32_t rest = group_out - column;
      const int32_t channel = group * group_out + column;
      const float* panel = panels + column * depth;
      const int32_t taken = rest > step - kPanel ? step : kPanel;
      for (int32_t row = 0; row < rows; row += kTileRows) {
        const TileTarget target{.rows = rows - row,
                                .columns = std::min(taken, rest),
                                .bias = bias_ + channel,
                                .clamp = params_.clamp,
                                .output = output + int64_t{row} * s.output_c + channel,
                                .row_stride = s.output_c};
        if (taken > kPanel) {
          MultiplyTile<1, kTilePanels>(patches, panel, depth, target);
        } else if (rows == 1) {
          MultiplyTile<1, 1>(patches, panel, depth, target);
        } else {
          MultiplyTile<kTileRows, 1>(patches + row * depth, panel, depth, target);
        }
      }
      column += taken;
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
