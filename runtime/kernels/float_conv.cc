// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/float_conv.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/patches.h"

namespace atollrt {
namespace {

// Output channels of a block, which threads may share among them: a multiple of the rows that a
// kernel of any level takes at a time.
constexpr int64_t kBlockRows = 192;
// Floats of the patches of a tile.
constexpr int64_t kPatchFloats = int64_t{1} << 18;
// With fewer tiles of pixels than this, blocks of channels are tasks of their own.
constexpr int64_t kFewTiles = 8;

int64_t GroupRows(const ConvShape& s) { return s.output_c / s.groups; }
int64_t GroupBlocks(const ConvShape& s) { return (GroupRows(s) - 1) / kBlockRows + 1; }

// Pixels lie one after the other as the rows that they are multiplied by.
bool IsMatrix(const ConvShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 &&
         s.pad_top == 0 && s.pad_left == 0 && s.groups == 1 && s.input_h == s.output_h &&
         s.input_w == s.output_w;
}

// Of a patch: as many floats are copied at once, by instructions; what is too much is overwritten
// by the next row, and after the last one there is room.
constexpr int64_t kShortRow = 16;

// The patches of pixels in turn, as GatherPatch has each of them; cells that lie side by side in a
// row of the image are copied at once.
void GatherPatches(const ConvShape& s, const uint8_t* input, int32_t group, int64_t pixel,
                   int64_t count, float* patches) {
  if (s.groups != 1 || s.dilation_w != 1) {
    for (int64_t i = 0; i < count; ++i, patches += FilterDepth(s)) {
      GatherPatch(s, input, group, pixel + i, patches);
    }
    return;
  }
  int64_t x = pixel % s.output_w;
  int64_t y = pixel / s.output_w % s.output_h;
  int64_t image = pixel / s.output_w / s.output_h;
  const int64_t row = int64_t{s.kernel_w} * s.input_c;
  const int64_t cells = int64_t{s.batch} * s.input_h * s.input_w * s.input_c;
  const bool is_short = row <= kShortRow;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t left = x * s.stride_w - s.pad_left;
    const int64_t first = std::clamp<int64_t>(-left, 0, s.kernel_w) * s.input_c;
    const int64_t end =
        std::max(std::clamp<int64_t>(s.input_w - left, 0, s.kernel_w) * s.input_c, first);
    for (int64_t ky = 0; ky < s.kernel_h; ++ky, patches += row) {
      const int64_t in_y = y * s.stride_h - s.pad_top + ky * s.dilation_h;
      if (in_y < 0 || in_y >= s.input_h || first == end) {
        std::fill_n(patches, row, 0.0f);
        continue;
      }
      const int64_t cell = ((image * s.input_h + in_y) * s.input_w + left) * s.input_c + first;
      if (is_short && end - first == row && cell + kShortRow <= cells) {
        std::memcpy(patches, input + 4 * cell, kShortRow * 4);
        continue;
      }
      std::fill_n(patches, first, 0.0f);
      std::memcpy(patches + first, input + 4 * cell, static_cast<size_t>(end - first) * 4);
      std::fill_n(patches + end, row - end, 0.0f);
    }
    if (++x < s.output_w) continue;
    x = 0;
    if (++y < s.output_h) continue;
    y = 0;
    ++image;
  }
}

}  // namespace

int64_t FloatConv::BlockFloats(int64_t channel) const {
  const ConvShape& s = params_.shape;
  return products_->packed_floats(std::min(kBlockRows, GroupRows(s) - channel), FilterDepth(s));
}

int64_t FloatConv::Columns() const {
  return std::clamp<int64_t>(kPatchFloats / FilterDepth(params_.shape), 1, kProductColumns);
}

Result<FloatConv> FloatConv::Prepare(const Conv2DFloatParams& params, CpuFeatures features) {
  FloatConv conv;
  conv.params_ = params;
  conv.params_.weights = conv.params_.bias = nullptr;
  conv.products_ = &ChooseFloatProducts(features);
  conv.loops_ = &ChooseFloatLoops(features);
  const ConvShape& s = params.shape;
  const int64_t depth = FilterDepth(s);
  int64_t group_floats = 0;
  for (int64_t row = 0; row < GroupRows(s); row += kBlockRows)
    group_floats += conv.BlockFloats(row);
  ATOLL_ASSIGN_OR_RETURN(conv.packed_,
                         Buffer::Allocate(static_cast<size_t>(group_floats) *
                                          static_cast<size_t>(s.groups) * sizeof(float)));
  ATOLL_ASSIGN_OR_RETURN(conv.bias_,
                         Buffer::Allocate(static_cast<size_t>(s.output_c) * sizeof(float)));
  if (params.bias != nullptr) std::memcpy(conv.bias_.data(), params.bias, conv.bias_.size());

  // Weights may be unaligned in their file.
  ATOLL_ASSIGN_OR_RETURN(Buffer block,
                         Buffer::Allocate(static_cast<size_t>(std::min(kBlockRows, GroupRows(s))) *
                                          static_cast<size_t>(depth) * sizeof(float)));
  float* packed = reinterpret_cast<float*>(conv.packed_.data());
  const uint8_t* weights = params.weights;
  for (int64_t group = 0; group < s.groups; ++group) {
    for (int64_t row = 0; row < GroupRows(s); row += kBlockRows) {
      const int64_t rows = std::min(kBlockRows, GroupRows(s) - row);
      const auto bytes = static_cast<size_t>(rows * depth) * sizeof(float);
      std::memcpy(block.data(), weights, bytes);
      weights += bytes;
      conv.products_->pack(reinterpret_cast<const float*>(block.data()), rows, depth, packed);
      packed += conv.BlockFloats(row);
    }
  }
  return conv;
}

size_t FloatConv::ScratchBytes(int threads) const {
  return static_cast<size_t>(threads) * WorkerBytes();
}

size_t FloatConv::WorkerBytes() const {
  const int64_t depth = FilterDepth(params_.shape);
  const auto floats =
      static_cast<size_t>(products_->scratch_floats(depth) + Columns() * depth + kShortRow);
  return AlignUp(floats * sizeof(float), Buffer::kAlignment);
}

void FloatConv::RunTile(const uint8_t* input, int64_t pixel, int64_t columns, int64_t first,
                        int64_t end, float* scratch, float* output) const {
  const ConvShape& s = params_.shape;
  const int64_t depth = FilterDepth(s);
  float* const patches = scratch + products_->scratch_floats(depth);
  const float* const bias = reinterpret_cast<const float*>(bias_.data());
  const float* packed = reinterpret_cast<const float*>(packed_.data());
  const float* x = patches;
  if (const uint8_t* const row = input + pixel * depth * 4;
      IsMatrix(s) && reinterpret_cast<uintptr_t>(row) % alignof(float) == 0) {
    x = reinterpret_cast<const float*>(row);
  }
  int32_t gathered = -1;  // the group whose patches are there
  const int64_t blocks = GroupBlocks(s);
  for (int64_t block = 0; block < end; ++block) {
    const auto group = static_cast<int32_t>(block / blocks);
    const int64_t row = block % blocks * kBlockRows;
    const float* const weights = packed;
    packed += BlockFloats(row);
    if (block < first) continue;
    if (x == patches && gathered != group) {
      GatherPatches(s, input, group, pixel, columns, patches);
      gathered = group;
    }
    const int64_t rows = std::min(kBlockRows, GroupRows(s) - row);
    const int64_t channel = group * GroupRows(s) + row;
    float* const y = output + pixel * s.output_c + channel;
    loops_->fill(bias + channel, rows, columns, y, s.output_c);
    products_->multiply(weights, rows, depth, x, depth, columns, y, s.output_c, scratch);
    loops_->clamp(params_.clamp.min, params_.clamp.max, rows, columns, y, s.output_c);
  }
}

void FloatConv::Run(const uint8_t* input, uint8_t* output, uint8_t* scratch,
                    ThreadPool* pool) const {
  const ConvShape& s = params_.shape;
  const int64_t pixels = OutputPixels(s);
  const int64_t columns = Columns();
  const int64_t tiles = (pixels + columns - 1) / columns;
  const int64_t blocks = GroupBlocks(s) * s.groups;
  // Tasks are a matter of the shape alone, and so is what each of them computes.
  const int64_t parts = tiles < kFewTiles ? blocks : 1;
  constexpr int64_t kGrain = int64_t{1} << 17;  // products
  const int64_t work = columns * s.output_c / parts * FilterDepth(s);
  const int64_t least = std::max<int64_t>(1, kGrain / std::max<int64_t>(work, 1));
  ParallelRanges(pool, tiles * parts, least, [&](int64_t begin, int64_t end, int worker) {
    auto* const own =
        reinterpret_cast<float*>(scratch + static_cast<size_t>(worker) * WorkerBytes());
    for (int64_t task = begin; task < end; ++task) {
      const int64_t pixel = task / parts * columns;
      const int64_t first = task % parts * (blocks / parts);
      RunTile(input, pixel, std::min(columns, pixels - pixel), first, first + blocks / parts, own,
              reinterpret_cast<float*>(output));
    }
  });
}

}  // namespace atollrt
