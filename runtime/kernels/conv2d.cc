// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/conv2d.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/quantization/kept_fits.h"

namespace atollrt {
namespace {

uint8_t* AlignPointer(uint8_t* pointer) {
  return pointer + (-reinterpret_cast<uintptr_t>(pointer) % Buffer::kAlignment);
}

WeightSums SumWeights(const uint8_t* weights, int64_t count, ByteType type, int32_t zero_point) {
  constexpr int64_t kChunk = 1 << 20;  // the sums of as many fit 32 bits
  // As unsigned bytes: sums of absolute differences of those are one instruction.
  const uint8_t flip = type == ByteType::kInt8 ? 0x80 : 0;
  const uint8_t zero = static_cast<uint8_t>(zero_point - ByteMin(type));
  uint8_t nothing = 0;
  // Compilers cannot see that it is 0, so the first sum is one of absolute differences for them,
  // too.
  asm("" : "+r"(nothing));
  WeightSums sums;
  sums.sum = -count * zero;
  for (; count > 0; count -= kChunk, weights += kChunk) {
    uint32_t sum = 0, absolute = 0;
    const int64_t end = std::min(count, kChunk);
    for (int64_t k = 0; k < end; ++k) {
      const uint8_t weight = weights[k] ^ flip;
      sum += static_cast<uint32_t>(std::abs(weight - nothing));
      absolute += static_cast<uint32_t>(std::abs(weight - zero));
    }
    sums.sum += sum;
    sums.absolute += absolute;
  }
  return sums;
}

int64_t Depth(const ConvShape& s) {
  return int64_t{s.kernel_h} * s.kernel_w * (s.input_c / s.groups);
}

WeightSums SumChannel(const Conv2DParams& params, int32_t channel) {
  const int64_t depth = Depth(params.shape);
  return SumWeights(params.weights + channel * depth, depth, params.weight_type,
                    params.weight_zero_point);
}

RhsWeights GroupWeights(const Conv2DParams& params, const ConvBlocks& blocks, int32_t group) {
  const int32_t group_out = params.shape.output_c / params.shape.groups;
  return {.weights = params.weights + group * group_out * Depth(params.shape),
          .type = params.weight_type,
          .zero_point = params.weight_zero_point,
          .columns = group_out,
          .segment_depth = blocks.segment_depth(),
          .segment_offsets = blocks.segment_offsets()};
}

// What packed weights depend on.
std::array<uint32_t, 10> PackedFor(const Conv2DParams& params, const GemmKernel& kernel,
                                   const ConvBlocks& blocks) {
  return {static_cast<uint32_t>(kernel.sums_words()     ? PackedWeightsKind::kSmallConv2D
                                : kernel.narrow_weights ? PackedWeightsKind::kNarrowConv2D
                                                        : PackedWeightsKind::kConv2D),
          static_cast<uint32_t>(kernel.k_group),
          static_cast<uint32_t>(kernel.panel_columns),
          static_cast<uint32_t>(kernel.lhs_element_bytes),
          static_cast<uint32_t>(params.weight_type),
          static_cast<uint32_t>(params.weight_zero_point),
          static_cast<uint32_t>(params.shape.groups),
          static_cast<uint32_t>(params.shape.output_c),
          static_cast<uint32_t>(blocks.segment_depth()),
          static_cast<uint32_t>(blocks.segment_offsets().size())};
}

// Of the kernels for this CPU, the one that packed weights are for, else the one for small weights
// if these are.
const GemmKernel& ChooseKernel(const Conv2DParams& params, std::span<const uint8_t> packed_weights,
                               CpuFeatures features) {
  const GemmKernel& kernel = ChooseGemm(features);
  if (kernel.for_small_weights == nullptr) return kernel;
  const GemmKernel& small = *kernel.for_small_weights;
  const ConvBlocks blocks(params.shape, params.input_type, &small, nullptr);
  for (const GemmKernel* const one : {&small, &kernel}) {
    bool has_fits = false;
    auto wanted = PackedFor(params, *one, blocks);
    if (PackedWeightsReader::Open(packed_weights, wanted, &has_fits).ok()) return *one;
  }
  // A layer has one kernel, and so its first group of channels speaks for all.
  return PackedRhs::Pays(small, GroupWeights(params, blocks, 0)) ? small : kernel;
}

std::optional<NearFilter> NearFilterOf(const Conv2DParams& params) {
  return WithoutFarTaps(params.shape, FilterKind::kConv, params.weights, params.weight_zero_point);
}

}  // namespace

bool KeepsFits(const OutputStage& output, FitFloatColumn fit) {
  return fit != nullptr && output.mode == RequantizeMode::kFixedPoint && !output.channels.empty();
}

FixedPointColumn ColumnOf(const Conv2DParams& params, int32_t channel, const WeightSums& sums) {
  return ColumnOf(params.output.channels[channel], sums, params.input_type, params.input_zero_point,
                  params.output.zero_point, params.output.clamp);
}

Conv2DParams With(const NearFilter& near, Conv2DParams params) {
  params.shape = near.shape;
  params.weights = near.weights.data();
  return params;
}

Result<Conv2D> Conv2D::Prepare(const Conv2DParams& params, CpuFeatures features) {
  const ConvShape& s = params.shape;
  if (const auto near = NearFilterOf(params)) return Prepare(With(*near, params), features);
  Conv2D conv;
  conv.params_ = params;
  conv.kernel_ = &ChooseKernel(params, params.packed_weights, features);
  const int64_t group_in = s.input_c / s.groups;

  // One block: for each group the columns, then a pixel of padding.
  const size_t columns_bytes =
      AlignUp(OutputColumns::Bytes(s.output_c / s.groups, conv.kernel_->fit), Buffer::kAlignment);
  const size_t pad_bytes = static_cast<size_t>(group_in);
  const size_t groups = static_cast<size_t>(s.groups);
  ATOLL_ASSIGN_OR_RETURN(conv.columns_memory_,
                         Buffer::Allocate(groups * columns_bytes + pad_bytes));
  uint8_t* const pad_pixel = conv.columns_memory_.data() + groups * columns_bytes;
  std::memset(pad_pixel, static_cast<uint8_t>(params.input_zero_point), pad_bytes);
  conv.blocks_ = ConvBlocks(s, params.input_type, conv.kernel_, pad_pixel);

  bool has_fits = false;
  auto wanted = PackedFor(params, *conv.kernel_, conv.blocks_);
  auto packed = PackedWeightsReader::Open(params.packed_weights, wanted, &has_fits);
  if (packed.ok()) ATOLL_RETURN_IF_ERROR(conv.SetWeights(params, &packed, has_fits));
  conv.uses_packed_weights_ = packed.ok();
  if (!packed.ok()) ATOLL_RETURN_IF_ERROR(conv.SetWeights(params, nullptr, false));
  conv.params_.weights = nullptr;
  conv.params_.output.channels = {};
  return conv;
}

Status Conv2D::SetWeights(const Conv2DParams& params, PackedWeightsReader* packed, bool has_fits) {
  const ConvShape& s = params.shape;
  const int32_t group_out = s.output_c / s.groups;
  const size_t columns_bytes =
      AlignUp(OutputColumns::Bytes(group_out, kernel_->fit), Buffer::kAlignment);
  const int32_t lhs_offset =
      params.input_type == ByteType::kInt8 ? kernel_->int8_lhs_offset : kernel_->uint8_lhs_offset;
  columns_.clear();
  rhs_.clear();
  columns_.reserve(static_cast<size_t>(s.groups));
  rhs_.reserve(static_cast<size_t>(s.groups));
  for (int32_t group = 0; group < s.groups; ++group) {
    columns_.push_back(OutputColumns::In(
        columns_memory_.data() + static_cast<size_t>(group) * columns_bytes, group_out,
        params.output.mode, params.output.zero_point, params.output.clamp, kernel_->fit));
    columns_.back().finds_fits = params.output.finds_fits;
    if (has_fits) {
      columns_.back().kept_fits =
          packed->NextBlock(static_cast<uint64_t>(group_out) * kKeptFitBytes);
    }
    for (int32_t c = 0; c < group_out; ++c) {
      const int32_t channel = group * group_out + c;
      columns_.back().Set(c, params.output.channels[channel],
                          packed == nullptr ? SumChannel(params, channel) : packed->NextSums(),
                          params.input_type, params.input_zero_point, lhs_offset);
    }
    const RhsWeights weights = GroupWeights(params, blocks_, group);
    if (packed != nullptr) {
      rhs_.push_back(PackedRhs::Use(*kernel_, weights, packed));
    } else {
      ATOLL_ASSIGN_OR_RETURN(PackedRhs rhs, PackedRhs::Pack(*kernel_, weights));
      rhs_.push_back(std::move(rhs));
    }
  }
  return Status();
}

std::vector<uint8_t> Conv2D::PackWeights(const Conv2DParams& params, CpuFeatures features) {
  if (const auto near = NearFilterOf(params)) return PackWeights(With(*near, params), features);
  const GemmKernel& kernel = ChooseKernel(params, {}, features);
  const ConvBlocks blocks(params.shape, params.input_type, &kernel, nullptr);
  const int32_t group_out = params.shape.output_c / params.shape.groups;
  const bool has_fits = KeepsFits(params.output, kernel.fit);
  PackedWeightsWriter writer;
  auto packed_for = PackedFor(params, kernel, blocks);
  if (has_fits) packed_for[0] |= kWithFits;
  writer.Add(packed_for);
  for (int32_t group = 0; group < params.shape.groups; ++group) {
    std::vector<FixedPointColumn> columns;
    for (int32_t c = 0; c < group_out; ++c) {
      const int32_t channel = group * group_out + c;
      const WeightSums sums = SumChannel(params, channel);
      writer.Add(sums);
      if (has_fits) columns.push_back(ColumnOf(params, channel, sums));
    }
    if (has_fits) writer.AddFits(kernel.fit, columns);
    PackedRhs::Save(kernel, GroupWeights(params, blocks, group), &writer);
  }
  return writer.Finish();
}

int32_t Conv2D::CountFloatChannels() const {
  int32_t channels = 0;
  for (const OutputColumns& columns : columns_) channels += columns.CountFloat();
  return channels;
}

size_t Conv2D::WorkerScratchBytes() const {
  return AlignUp(static_cast<size_t>(blocks_.scratch_bytes()), Buffer::kAlignment);
}

size_t Conv2D::ScratchBytes(int threads) const {
  const size_t bytes = WorkerScratchBytes();
  return bytes == 0 ? 0 : Buffer::kAlignment + static_cast<size_t>(threads) * bytes;
}

// Lines if there are enough, else the pixels of the lines, unless there are too few to fill their
// tiles; then, as in a fully connected layer, each thread takes a part of the weights.
Conv2D::Split Conv2D::ChooseSplit(int threads) const {
  if (blocks_.images() * blocks_.lines() >= 4 * threads) return Split::kLines;
  const bool enough_tiles = SplitCount(Split::kTiles) >= threads;
  return enough_tiles || SplitCount(Split::kPanels) < threads ? Split::kTiles : Split::kPanels;
}

int64_t Conv2D::SplitCount(Split split) const {
  switch (split) {
    case Split::kLines:
      return blocks_.images() * blocks_.lines();
    case Split::kTiles:
      return DivideRoundingUp(blocks_.columns(), kernel_->tile_rows);
    case Split::kPanels:
      break;
  }
  return DivideRoundingUp(params_.shape.output_c / params_.shape.groups, kernel_->panel_columns);
}

Conv2D::Part Conv2D::RangePart(Split split, int64_t begin, int64_t end) const {
  const int32_t group_out = params_.shape.output_c / params_.shape.groups;
  Part part = {.input = {},
               .output = nullptr,
               .output_line = 0,
               .scratch = nullptr,
               .first_line = 0,
               .end_line = blocks_.images() * blocks_.lines(),
               .first_pixel = 0,
               .end_pixel = blocks_.columns(),
               .first_column = 0,
               .end_column = group_out};
  switch (split) {
    case Split::kLines:
      part.first_line = begin;
      part.end_line = end;
      break;
    case Split::kTiles:
      part.first_pixel = static_cast<int32_t>(begin * kernel_->tile_rows);
      part.end_pixel =
          static_cast<int32_t>(std::min<int64_t>(blocks_.columns(), end * kernel_->tile_rows));
      break;
    case Split::kPanels:
      part.first_column = static_cast<int32_t>(begin * kernel_->panel_columns);
      part.end_column =
          static_cast<int32_t>(std::min<int64_t>(group_out, end * kernel_->panel_columns));
      break;
  }
  return part;
}

void Conv2D::Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool,
                 const PairTailOperands& tail) const {
  constexpr int64_t kPartMacs = 128 << 10;  // worth handing to another thread
  const ConvShape& s = params_.shape;
  if (blocks_.images() * blocks_.lines() * blocks_.columns() == 0) return;
  scratch = AlignPointer(scratch);
  const size_t worker_bytes = WorkerScratchBytes();
  const Split split = ChooseSplit(pool == nullptr ? 1 : pool->threads());
  const int64_t count = SplitCount(split);
  const int64_t macs = s.OutputBytes() * s.kernel_h * s.kernel_w * (s.input_c / s.groups);
  const int64_t least = kPartMacs * count / (macs + 1) + 1;
  ParallelRanges(pool, count, least, [&](int64_t begin, int64_t end, int worker) {
    Part part = RangePart(split, begin, end);
    part.input = {.data = input, .end = input + s.InputBytes()};
    part.output = output;
    part.scratch = scratch + static_cast<size_t>(worker) * worker_bytes;
    part.tail = tail;
    for (int32_t group = 0; group < s.groups; ++group) RunPart(part, group);
  });
}

void Conv2D::RunLines(const LineWindow& input, LineRange lines, uint8_t* output,
                      uint8_t* scratch) const {
  const ConvShape& s = params_.shape;
  Part part = {.input = {.data = input.data, .end = input.end, .first_line = input.lines.first},
               .output = output,
               .output_line = lines.first,
               .scratch = AlignPointer(scratch),
               .first_line = lines.first,
               .end_line = lines.end,
               .first_pixel = 0,
               .end_pixel = s.output_w,
               .first_column = 0,
               .end_column = s.output_c / s.groups};
  if (blocks_.lines() != s.output_h) {  // all pixels are one line
    part.input.data += int64_t{lines.first - input.lines.first} * s.input_w * s.input_c;
    part.input.first_line = 0;
    part.output_line = part.first_line = 0;
    part.end_line = 1;
    part.end_pixel = (lines.end - lines.first) * s.output_w;
  }
  for (int32_t group = 0; group < s.groups; ++group) RunPart(part, group);
}

void Conv2D::RunPart(const Part& part, int32_t group) const {
  int32_t block_lines = blocks_.block_lines();
  int32_t block_columns = blocks_.block_columns();
  if (part.tail.tail != nullptr) {
    // What a block makes waits for the tail in a level 1 cache.
    constexpr int32_t kTailBytes = 16 << 10;
    const int32_t pixels = std::max(kTailBytes / params_.shape.output_c, 1);
    block_lines = std::clamp(pixels / blocks_.columns(), 1, block_lines);
    block_columns = std::min(block_columns,
                             pixels / kernel_->tile_rows * kernel_->tile_rows + kernel_->tile_rows);
  }
  ConvBlocks::Block block;
  for (int64_t line = part.first_line; line < part.end_line; line += block.lines) {
    block.image = line / blocks_.lines();
    block.line = static_cast<int32_t>(line % blocks_.lines());
    block.lines = static_cast<int32_t>(std::min<int64_t>(
        std::min(block_lines, blocks_.lines() - block.line), part.end_line - line));
    for (block.column = part.first_pixel; block.column < part.end_pixel;
         block.column += block.columns) {
      block.columns = std::min(block_columns, part.end_pixel - block.column);
      RunBlock(part, group, block);
      if (part.tail.tail != nullptr) RunTail(part, group, block);
    }
  }
}

void Conv2D::RunBlock(const Part& part, int32_t group, const ConvBlocks::Block& block) const {
  const ConvShape& s = params_.shape;
  const ConvBlocks::Rows rows = blocks_.Get(part.input, group, block, part.scratch);
  const int64_t line = block.image * blocks_.lines() + block.line - part.output_line;
  const int64_t pixel = line * blocks_.columns() + block.column;
  GemmArgs args = {.lhs = rows.data,
                   .lhs_stride = rows.stride,
                   .lhs_line_stride = rows.line_stride,
                   .rows = block.columns,
                   .lines = block.lines,
                   .panels = rhs_[group].panels(),
                   .first_column = part.first_column,
                   .end_column = part.end_column,
                   .columns = &columns_[group],
                   .output = part.output + pixel * s.output_c + group * (s.output_c / s.groups),
                   .output_stride = s.output_c,
                   .output_line_stride = int64_t{blocks_.columns()} * s.output_c};
  if (args.rows == 1) {  // a column of pixels fills tiles better if it is taken for a line
    std::swap(args.rows, args.lines);
    std::swap(args.lhs_stride, args.lhs_line_stride);
    std::swap(args.output_stride, args.output_line_stride);
  }
  kernel_->run(args);
}

// For the bytes of one block that was just computed.
void Conv2D::RunTail(const Part& part, int32_t group, const ConvBlocks::Block& block) const {
  const int64_t pixel_bytes = params_.shape.output_c;
  const int64_t line_bytes = blocks_.columns() * pixel_bytes;
  const int64_t first_line = block.image * blocks_.lines() + block.line;
  const int64_t first = first_line * line_bytes + block.column * pixel_bytes +
                        group * (params_.shape.output_c / params_.shape.groups) + part.first_column;
  const auto run = [&](int64_t offset, int64_t count) {
    part.tail.tail->Run(part.output + offset, part.tail.other + offset, part.tail.y + offset,
                        count);
  };
  const int64_t width = part.end_column - part.first_column;
  if (width == pixel_bytes && block.columns == blocks_.columns()) {
    return run(first, block.lines * line_bytes);
  }
  for (int32_t line = 0; line < block.lines; ++line) {
    const int64_t of_line = first + line * line_bytes;
    if (width == pixel_bytes) {
      run(of_line, block.columns * pixel_bytes);
      continue;
    }
    for (int32_t column = 0; column < block.columns; ++column) {
      run(of_line + column * pixel_bytes, width);
    }
  }
}

const char* Conv2D::kernel_name() const { return kernel_->name; }

}  // namespace atollrt
