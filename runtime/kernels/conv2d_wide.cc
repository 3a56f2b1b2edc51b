// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/conv2d_wide.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/patches.h"

namespace atollrt {
namespace {

// ---- What the types share -----------------------------------------------------------------------

// sums[o] = sum over the taps of x[o / multiplier] * weights[ky][kx][o], multiplier being
// output_c / input_c. `weights` has elements of type W, `input` of type T.
template <typename T, typename W, typename Sum>
void AccumulateDepthwise(const ConvShape& s, const uint8_t* input, const W* weights, int64_t pixel,
                         Sum* sums) {
  const int64_t multiplier = s.output_c / s.input_c;
  std::fill_n(sums, s.output_c, Sum{0});
  ForEachTap(s, pixel, [&](int32_t ky, int32_t kx, int64_t cell) {
    if (cell < 0) return;
    const uint8_t* x = input + cell * static_cast<int64_t>(sizeof(T));
    const W* w = weights + (int64_t{ky} * s.kernel_w + kx) * s.output_c;
    const auto value = [&](int64_t channel) {
      return LoadLittleEndian<T>(x + channel * static_cast<int64_t>(sizeof(T)));
    };
    if (multiplier == 1) {
      for (int64_t c = 0; c < s.output_c; ++c) sums[c] += value(c) * w[c];
      return;
    }
    for (int64_t i = 0; i < s.input_c; ++i) {
      for (int64_t j = i * multiplier; j < (i + 1) * multiplier; ++j) sums[j] += value(i) * w[j];
    }
  });
}

// Elements of the weights of a depthwise filter.
int64_t DepthwiseWeights(const ConvShape& s) {
  return int64_t{s.kernel_h} * s.kernel_w * s.output_c;
}

// ---- float32 ------------------------------------------------------------------------------------

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
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      std::memcpy(weights + 2 * p, panels + (p * depth + k) * kPanel, kPanel * sizeof(float));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float x = patches[r * depth + k];
#pragma GCC unroll 8
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

// kConv: per group, panels of kPanel columns, [depth][kPanel] each, padded with zeros. kDepthwise:
// as given. Then the biases, [output_c].
int64_t PackedWeights(const Conv2DFloatParams& p) {
  const ConvShape& s = p.shape;
  return p.kind == FilterKind::kConv ? s.groups * Panels(s) * kPanel * FilterDepth(s)
                                     : DepthwiseWeights(s);
}
int64_t PackedElements(const Conv2DFloatParams& p) { return PackedWeights(p) + p.shape.output_c; }

void Pack(const Conv2DFloatParams& p, float* packed) {
  const int64_t count = PackedWeights(p);
  if (p.kind == FilterKind::kConv) {
    PackPanels(p.shape, p.weights, packed);
  } else {
    std::memcpy(packed, p.weights, static_cast<size_t>(count) * sizeof(float));
  }
  if (p.bias == nullptr) return;
  std::memcpy(packed + count, p.bias, static_cast<size_t>(p.shape.output_c) * sizeof(float));
}

// Pixels that are computed at a time: those whose patches share L1 with a panel of weights.
int32_t BlockPixels(const Conv2DFloatParams& p) {
  if (p.kind == FilterKind::kDepthwise) return 1;
  constexpr int64_t kBlockBytes = 16 << 10;
  const int64_t tile_bytes = kTileRows * FilterDepth(p.shape) * 4;
  return kTileRows * static_cast<int32_t>(std::clamp<int64_t>(kBlockBytes / tile_bytes, 1, 16));
}

size_t WorkerBytes(const Conv2DFloatParams& p) {
  if (p.kind == FilterKind::kDepthwise) return 0;
  return static_cast<size_t>(BlockPixels(p)) * static_cast<size_t>(FilterDepth(p.shape)) *
         sizeof(float);
}

void ConvolveBlock(const Conv2DFloatParams& p, const float* packed, const uint8_t* input,
                   int64_t pixel, int32_t rows, float* patches, float* output) {
  const ConvShape& s = p.shape;
  const float* const bias = packed + PackedWeights(p);
  const int64_t depth = FilterDepth(s);
  const int32_t group_out = s.output_c / s.groups;
  const float* panels = packed;
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
                                .bias = bias + channel,
                                .clamp = p.clamp,
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

// `pixels` of them, from `pixel` on, to `output`.
void Convolve(const Conv2DFloatParams& p, const float* packed, const uint8_t* input, int64_t pixel,
              int32_t pixels, uint8_t* scratch, float* output) {
  if (p.kind == FilterKind::kConv) {
    return ConvolveBlock(p, packed, input, pixel, pixels, reinterpret_cast<float*>(scratch),
                         output);
  }
  AccumulateDepthwise<float>(p.shape, input, packed, pixel, output);
  const float* const bias = packed + PackedWeights(p);
  for (int32_t c = 0; c < p.shape.output_c; ++c) output[c] = p.clamp(output[c] + bias[c]);
}

// ---- int16 --------------------------------------------------------------------------------------

int64_t PackedElements(const Conv2DInt16Params& p) {
  return p.kind == FilterKind::kConv ? p.shape.output_c * FilterDepth(p.shape)
                                     : DepthwiseWeights(p.shape);
}

// Widened, so that multiply-add instructions apply.
void Pack(const Conv2DInt16Params& p, int16_t* packed) {
  const int64_t count = PackedElements(p);
  for (int64_t i = 0; i < count; ++i) packed[i] = static_cast<int8_t>(p.weights[i]);
}

int32_t BlockPixels(const Conv2DInt16Params&) { return 1; }

// A patch, or the sums of one pixel.
size_t WorkerBytes(const Conv2DInt16Params& p) {
  return p.kind == FilterKind::kConv ? static_cast<size_t>(FilterDepth(p.shape)) * sizeof(int16_t)
                                     : static_cast<size_t>(p.shape.output_c) * sizeof(int64_t);
}

// Products are at most 2^22, so 256 of them fit into 32 bits.
int64_t DotProduct(const int16_t* a, const int16_t* b, int64_t count) {
  constexpr int64_t kChunk = 256;
  int64_t sum = 0;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    int32_t part = 0;
    const int64_t end = std::min(begin + kChunk, count);
    for (int64_t i = begin; i < end; ++i) part += a[i] * b[i];
    sum += part;
  }
  return sum;
}

int16_t Finish(const Conv2DInt16Params& p, int64_t sum, int32_t channel) {
  const Output16Channel& c = p.channels[channel];
  const int64_t biased =
      static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(c.bias));
  const ClampRange clamp = p.clamp;
  switch (p.mode) {
    case Requantize16Mode::kWide:
      return static_cast<int16_t>(
          Clamp(MultiplyByQuantizedMultiplier64(biased, c.multiplier), clamp.min, clamp.max));
    case Requantize16Mode::kFixedPoint:
      return static_cast<int16_t>(
          Clamp(MultiplyByQuantizedMultiplier(static_cast<int32_t>(biased), c.multiplier),
                clamp.min, clamp.max));
    case Requantize16Mode::kDouble:
      break;
  }
  const double value = std::round(static_cast<double>(biased) * c.scale);
  return static_cast<int16_t>(
      std::clamp(value, static_cast<double>(clamp.min), static_cast<double>(clamp.max)));
}

void Convolve(const Conv2DInt16Params& p, const int16_t* weights, const uint8_t* input,
              int64_t pixel, int32_t /*pixels*/, uint8_t* scratch, int16_t* output) {
  const ConvShape& s = p.shape;
  if (p.kind == FilterKind::kDepthwise) {
    int64_t* const sums = reinterpret_cast<int64_t*>(scratch);
    AccumulateDepthwise<int16_t>(s, input, weights, pixel, sums);
    for (int32_t c = 0; c < s.output_c; ++c) output[c] = Finish(p, sums[c], c);
    return;
  }
  int16_t* const patch = reinterpret_cast<int16_t*>(scratch);
  const int64_t depth = FilterDepth(s);
  const int32_t group_out = s.output_c / s.groups;
  for (int32_t channel = 0; channel < s.output_c; ++channel) {
    if (channel % group_out == 0) GatherPatch(s, input, channel / group_out, pixel, patch);
    output[channel] = Finish(p, DotProduct(patch, weights + channel * depth, depth), channel);
  }
}

// Of each worker's scratch, from one to the next.
template <typename Params>
size_t WorkerScratchBytes(const Params& params) {
  return AlignUp(WorkerBytes(params), Buffer::kAlignment);
}

}  // namespace

template <typename Params>
Result<WideConv2D<Params>> WideConv2D<Params>::Prepare(const Params& params, CpuFeatures) {
  using Element = typename Params::Element;
  WideConv2D conv;
  ATOLL_ASSIGN_OR_RETURN(
      conv.packed_,
      Buffer::Allocate(static_cast<size_t>(PackedElements(params)) * sizeof(Element)));
  Pack(params, reinterpret_cast<Element*>(conv.packed_.data()));
  conv.params_ = params;
  conv.params_.weights = nullptr;
  return conv;
}

template <typename Params>
size_t WideConv2D<Params>::ScratchBytes(int threads) const {
  return static_cast<size_t>(threads) * WorkerScratchBytes(params_);
}

template <typename Params>
void WideConv2D<Params>::Run(const uint8_t* input, uint8_t* output, uint8_t* scratch,
                             ThreadPool* pool) const {
  using Element = typename Params::Element;
  const Element* const packed = reinterpret_cast<const Element*>(packed_.data());
  const int64_t pixels = OutputPixels(params_.shape);
  const int threads = pool == nullptr ? 1 : pool->threads();
  const int32_t block = BlockPixels(params_);
  ParallelFor(pool, threads, [&](int task, int worker) {
    uint8_t* const own = scratch + static_cast<size_t>(worker) * WorkerScratchBytes(params_);
    const int64_t end = pixels * (task + 1) / threads;
    for (int64_t pixel = pixels * task / threads; pixel < end; pixel += block) {
      Convolve(params_, packed, input, pixel,
               static_cast<int32_t>(std::min<int64_t>(block, end - pixel)), own,
               reinterpret_cast<Element*>(output) + pixel * params_.shape.output_c);
    }
  });
}

template class WideConv2D<Conv2DFloatParams>;
template class WideConv2D<Conv2DInt16Params>;

}  // namespace atollrt
