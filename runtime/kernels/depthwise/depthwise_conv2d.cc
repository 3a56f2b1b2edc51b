// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/depthwise/depthwise_conv2d.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/packed_weights.h"
#include "runtime/kernels/quantization/kept_fits.h"

namespace atollrt {
namespace {

// Filters of a single input channel are a convolution like any other, once their weights have its
// order, which is what `weights` becomes.
bool IsConv(const ConvShape& shape) { return shape.input_c == 1 && shape.output_c > 1; }
Conv2DParams ConvParams(const DepthwiseConv2DParams& params, std::vector<uint8_t>* weights) {
  const size_t taps = static_cast<size_t>(params.shape.kernel_h) * params.shape.kernel_w;
  const size_t channels = static_cast<size_t>(params.shape.output_c);
  weights->resize(channels * taps);
  for (size_t tap = 0; tap < taps; ++tap) {
    for (size_t c = 0; c < channels; ++c) {
      (*weights)[c * taps + tap] = params.weights[tap * channels + c];
    }
  }
  Conv2DParams conv = params;
  conv.weights = weights->data();
  conv.shape.groups = 1;
  return conv;
}

std::optional<NearFilter> NearFilterOf(const DepthwiseConv2DParams& params) {
  return WithoutFarTaps(params.shape, FilterKind::kDepthwise, params.weights,
                        params.weight_zero_point);
}

}  // namespace

void DepthwiseConv2D::SetMeasures(const DepthwiseConv2DParams& params, CpuFeatures features) {
  const ConvShape& s = params.shape;
  params_ = params;
  params_.weights = nullptr;
  params_.output.channels = {};
  kernel_ = &ChooseDepthwise(features);
  depth_multiplier_ = s.output_c / s.input_c;
  row_groups_ = DivideRoundingUp(s.kernel_h, kernel_->taps_per_cell);
  if (s.dilation_h == 1) {
    const int32_t unused = row_groups_ * kernel_->taps_per_cell - s.kernel_h;
    unit_lines_ = 1 + unused / s.stride_h;
  }
  // May be billions, and then nobody has memory to run it.
  cell_columns_ = int64_t{std::max(s.output_w - 1, 0)} * s.stride_w +
                  int64_t{s.kernel_w - 1} * s.dilation_w + 1;

  // Units whose cells leave room in L1 for weights and outputs.
  constexpr int64_t kUnitBytes = 24 << 10;
  const int64_t block_bytes = row_groups_ * cell_columns_ * kDepthwiseCellBytes;
  slice_blocks_ = static_cast<int32_t>(std::clamp<int64_t>(kUnitBytes / block_bytes, 1, blocks()));
}

Result<DepthwiseConv2D> DepthwiseConv2D::Prepare(const DepthwiseConv2DParams& params,
                                                 CpuFeatures features) {
  const ConvShape& s = params.shape;
  if (const auto near = NearFilterOf(params)) return Prepare(With(*near, params), features);
  DepthwiseConv2D conv;
  conv.SetMeasures(params, features);
  if (IsConv(s)) {
    std::vector<uint8_t> weights;
    ATOLL_ASSIGN_OR_RETURN(conv.conv_, Conv2D::Prepare(ConvParams(params, &weights), features));
    return conv;
  }
  bool has_fits = false;
  auto wanted = conv.PackedFor();
  auto packed = PackedWeightsReader::Open(params.packed_weights, wanted, &has_fits);
  if (packed.ok()) ATOLL_RETURN_IF_ERROR(conv.SetWeights(params, &packed, has_fits));
  conv.uses_packed_weights_ = packed.ok();
  if (!packed.ok()) ATOLL_RETURN_IF_ERROR(conv.SetWeights(params, nullptr, false));
  if (conv.CanRunRows()) {
    conv.by_rows_ = true;
    ATOLL_ASSIGN_OR_RETURN(conv.pad_line_, Buffer::Allocate(static_cast<size_t>(conv.RowColumns()) *
                                                                static_cast<size_t>(s.output_c) +
                                                            kDepthwiseBlock));
    std::memset(conv.pad_line_.data(), static_cast<uint8_t>(params.input_zero_point),
                conv.pad_line_.size());
    if (conv.depth_multiplier_ == 1)
      conv.slice_blocks_ = conv.blocks();  // else it bounds what is expanded
  }
  return conv;
}

std::vector<uint8_t> DepthwiseConv2D::PackWeights(const DepthwiseConv2DParams& params,
                                                  CpuFeatures features) {
  if (const auto near = NearFilterOf(params)) return PackWeights(With(*near, params), features);
  if (IsConv(params.shape)) {
    std::vector<uint8_t> weights;
    return Conv2D::PackWeights(ConvParams(params, &weights), features);
  }
  DepthwiseConv2D conv;
  conv.SetMeasures(params, features);
  PackedWeightsWriter writer;
  const bool has_fits = KeepsFits(params.output, conv.kernel_->fit);
  auto packed_for = conv.PackedFor();
  if (has_fits) packed_for[0] |= kWithFits;
  writer.Add(packed_for);
  std::vector<FixedPointColumn> columns;
  for (int32_t channel = 0; channel < params.shape.output_c; ++channel) {
    const WeightSums sums = conv.SumChannel(params, channel);
    writer.Add(sums);
    if (has_fits) columns.push_back(ColumnOf(params, channel, sums));
  }
  if (has_fits) writer.AddFits(conv.kernel_->fit, columns);
  const Cells cells = conv.AllCells(params);
  size_t count = 0;
  for (const std::vector<Cell>& block : cells) {
    const std::span<const Cell> rest = std::span(block).subspan(conv.tap_groups());
    writer.Add(static_cast<uint32_t>(rest.size()));
    for (const Cell cell : rest) writer.Add(static_cast<uint32_t>(cell.group));
    count += block.size();
  }
  conv.PackCells(params, cells, writer.AddBlock(count * kDepthwiseCellBytes));
  return writer.Finish();
}

int32_t DepthwiseConv2D::blocks() const {
  return DivideRoundingUp(params_.shape.output_c, kDepthwiseBlock);
}

std::array<uint32_t, 11> DepthwiseConv2D::PackedFor() const {
  const ConvShape& s = params_.shape;
  return {static_cast<uint32_t>(PackedWeightsKind::kDepthwiseConv2D),
          static_cast<uint32_t>(kernel_->taps_per_cell),
          static_cast<uint32_t>(kernel_->element_bytes),
          static_cast<uint32_t>(params_.weight_type),
          static_cast<uint32_t>(params_.weight_zero_point),
          static_cast<uint32_t>(s.output_c),
          static_cast<uint32_t>(s.kernel_h),
          static_cast<uint32_t>(s.kernel_w),
          static_cast<uint32_t>(s.stride_h),
          static_cast<uint32_t>(unit_lines_),
          static_cast<uint32_t>(row_groups_)};
}

DepthwiseConv2D::Cells DepthwiseConv2D::AllCells(const DepthwiseConv2DParams& params) const {
  Cells cells;
  for (int32_t line = 0; line < unit_lines_; ++line) {
    for (int32_t block = 0; block < blocks(); ++block) {
      cells.push_back(CellsOf(params, line, block));
    }
  }
  return cells;
}

DepthwiseConv2D::Cells DepthwiseConv2D::ReadCells(PackedWeightsReader* packed) const {
  Cells cells(static_cast<size_t>(unit_lines_) * static_cast<size_t>(blocks()));
  for (std::vector<Cell>& block : cells) {
    for (int32_t group = 0; group < tap_groups(); ++group) block.push_back({group, 0});
    for (uint32_t count = packed->Next(); count > 0 && packed->ok(); --count) {
      const uint32_t group = packed->Next();
      if (group >= static_cast<uint32_t>(tap_groups())) packed->Fail();
      block.push_back({static_cast<int32_t>(group), 1});
    }
  }
  return cells;
}

Status DepthwiseConv2D::SetWeights(const DepthwiseConv2DParams& params, PackedWeightsReader* packed,
                                   bool has_fits) {
  const ConvShape& s = params.shape;
  const int32_t input_offset = params.input_type == ByteType::kInt8 ? kernel_->int8_input_offset
                                                                    : kernel_->uint8_input_offset;
  const size_t columns_bytes =
      AlignUp(OutputColumns::Bytes(s.output_c, kernel_->fit), Buffer::kAlignment);
  const size_t pad_bytes = static_cast<size_t>(blocks()) * kDepthwiseBlock;
  ATOLL_ASSIGN_OR_RETURN(columns_memory_, Buffer::Allocate(columns_bytes + pad_bytes));
  columns_ = OutputColumns::In(columns_memory_.data(), s.output_c, params.output.mode,
                               params.output.zero_point, params.output.clamp, kernel_->fit);
  columns_.finds_fits = params.output.finds_fits;
  if (has_fits) {
    columns_.kept_fits = packed->NextBlock(static_cast<uint64_t>(s.output_c) * kKeptFitBytes);
  }
  uint8_t* pad_pixel = columns_memory_.data() + columns_bytes;
  std::memset(pad_pixel, static_cast<uint8_t>(params.input_zero_point), pad_bytes);
  pad_pixel_ = pad_pixel;
  for (int32_t channel = 0; channel < s.output_c; ++channel) {
    columns_.Set(channel, params.output.channels[channel],
                 packed == nullptr ? SumChannel(params, channel) : packed->NextSums(),
                 params.input_type, params.input_zero_point, input_offset);
  }

  const Cells cells = packed == nullptr ? AllCells(params) : ReadCells(packed);
  size_t cell_count = 0;
  for (const std::vector<Cell>& block : cells) cell_count += block.size();
  const size_t weight_bytes = cell_count * kDepthwiseCellBytes;
  const uint8_t* weights = nullptr;
  if (packed == nullptr) {
    ATOLL_ASSIGN_OR_RETURN(packed_, Buffer::Allocate(weight_bytes));
    PackCells(params, cells, packed_.data());
    weights = packed_.data();
  } else {
    weights = packed->NextBlock(weight_bytes);
    if (weights == nullptr) return Status();
  }
  offsets_.clear();
  weights_.clear();
  offsets_.reserve(cell_count);
  for (const std::vector<Cell>& block : cells) {
    weights_.push_back({.weights = weights,
                        .offsets = offsets_.data() + offsets_.size(),
                        .tap_groups = static_cast<int64_t>(block.size())});
    for (const Cell cell : block) {
      offsets_.push_back((cell.group / s.kernel_w * cell_columns_ +
                          int64_t{cell.group % s.kernel_w} * s.dilation_w) *
                         kDepthwiseCellBytes);
    }
    weights += block.size() * kDepthwiseCellBytes;
  }
  return Status();
}

WeightSums DepthwiseConv2D::SumChannel(const DepthwiseConv2DParams& params, int32_t channel) const {
  const ConvShape& s = params.shape;
  WeightSums sums;
  for (int64_t tap = 0; tap < int64_t{s.kernel_h} * s.kernel_w; ++tap) {
    const uint8_t byte = params.weights[tap * s.output_c + channel];
    const int32_t w = ByteValue(byte, params.weight_type) - params.weight_zero_point;
    sums.sum += w;
    sums.absolute += std::abs(w);
  }
  return sums;
}

// The weights, of all channels, that tap `tap` of tap group `group` multiplies for line `line` of a
// unit: those of each line lie `stride_h` taps further down. nullptr where there is none.
const uint8_t* DepthwiseConv2D::TapWeights(const DepthwiseConv2DParams& params, int32_t line,
                                           int32_t group, int32_t tap) const {
  const ConvShape& s = params.shape;
  const int32_t ky = group / s.kernel_w * kernel_->taps_per_cell + tap - line * s.stride_h;
  if (ky < 0 || ky >= s.kernel_h) return nullptr;
  return params.weights + (int64_t{ky} * s.kernel_w + group % s.kernel_w) * s.output_c;
}

// Whether no weight of the block, less the zero point, needs a second part.
bool DepthwiseConv2D::WeightsFitBytes(const DepthwiseConv2DParams& params, int32_t block) const {
  const ConvShape& s = params.shape;
  const int32_t first = block * kDepthwiseBlock;
  const int32_t count = std::min(kDepthwiseBlock, s.output_c - first);
  int32_t smallest = 0, largest = 0;
  for (int64_t tap = 0; tap < int64_t{s.kernel_h} * s.kernel_w; ++tap) {
    const uint8_t* const weights = params.weights + tap * s.output_c + first;
    for (int32_t c = 0; c < count; ++c) {
      const int32_t weight = ByteValue(weights[c], params.weight_type) - params.weight_zero_point;
      smallest = std::min(smallest, weight);
      largest = std::max(largest, weight);
    }
  }
  return BytePart(smallest, 0) == smallest && BytePart(largest, 0) == largest;
}

std::vector<DepthwiseConv2D::Cell> DepthwiseConv2D::CellsOf(const DepthwiseConv2DParams& params,
                                                            int32_t line, int32_t block) const {
  const int32_t end = std::min((block + 1) * kDepthwiseBlock, params.shape.output_c);
  std::vector<Cell> cells;
  const auto has_part = [&](int32_t group, int32_t part) {
    for (int32_t tap = 0; tap < kernel_->taps_per_cell; ++tap) {
      const uint8_t* const weights = TapWeights(params, line, group, tap);
      if (weights == nullptr) continue;
      for (int32_t c = block * kDepthwiseBlock; c < end; ++c) {
        const int32_t weight = ByteValue(weights[c], params.weight_type) - params.weight_zero_point;
        if (BytePart(weight, part) != 0) return true;
      }
    }
    return false;
  };
  for (int32_t group = 0; group < tap_groups(); ++group) cells.push_back({group, 0});
  if (kernel_->element_bytes > 1 || WeightsFitBytes(params, block)) return cells;
  for (int32_t part = 1; part < kByteParts; ++part) {
    for (int32_t group = 0; group < tap_groups(); ++group) {
      if (has_part(group, part)) cells.push_back({group, part});
    }
  }
  return cells;
}

void DepthwiseConv2D::PackCells(const DepthwiseConv2DParams& params, const Cells& cells,
                                uint8_t* to) const {
  for (size_t i = 0; i < cells.size(); ++i) {
    for (const Cell cell : cells[i]) {
      PackCell(params, static_cast<int32_t>(i) / blocks(), static_cast<int32_t>(i) % blocks(), cell,
               to);
      to += kDepthwiseCellBytes;
    }
  }
}

void DepthwiseConv2D::PackCell(const DepthwiseConv2DParams& params, int32_t line, int32_t block,
                               Cell cell, uint8_t* to) const {
  const ConvShape& s = params.shape;
  const int32_t first = block * kDepthwiseBlock;
  const int32_t channels = std::min(kDepthwiseBlock, s.output_c - first);
  const int32_t taps = kernel_->taps_per_cell;
  std::memset(to, 0, kDepthwiseCellBytes);
  for (int32_t tap = 0; tap < taps; ++tap) {
    const uint8_t* const weights = TapWeights(params, line, cell.group, tap);
    if (weights == nullptr) continue;
    for (int32_t c = 0; c < channels; ++c) {
      const int32_t weight =
          ByteValue(weights[first + c], params.weight_type) - params.weight_zero_point;
      const int32_t at = c * taps + tap;
      if (kernel_->element_bytes == 1) {
        to[at] = static_cast<uint8_t>(BytePart(weight, cell.part));
      } else {
        StoreLittleEndian(to + at * sizeof(int16_t), static_cast<int16_t>(weight));
      }
    }
  }
}

void DepthwiseConv2D::RunLines(const LineWindow& input, LineRange lines, uint8_t* output,
                               uint8_t* scratch) const {
  if (conv_) return conv_->RunLines(input, lines, output, scratch);
  scratch += -reinterpret_cast<uintptr_t>(scratch) % Buffer::kAlignment;
  for (int32_t block = 0; block < blocks(); block += slice_blocks_) {
    for (int32_t line = lines.first; line < lines.end; line += unit_lines_) {
      RunUnit({.input = input.data,
               .input_end = input.end,
               .input_line = input.lines.first,
               .output = output,
               .output_line = lines.first,
               .scratch = scratch,
               .image = 0,
               .first_line = line,
               .lines = std::min(unit_lines_, lines.end - line),
               .first_block = block,
               .blocks = std::min(slice_blocks_, blocks() - block)});
    }
  }
}

// Those that kernel_->run_rows may look at, a few pixels at a time; wider inputs are not read.
int32_t DepthwiseConv2D::RowColumns() const {
  constexpr int64_t kSlack = 64;
  return static_cast<int32_t>(std::min<int64_t>(params_.shape.input_w, cell_columns_ + kSlack));
}

bool DepthwiseConv2D::CanRunRows() const {
  const ConvShape& s = params_.shape;
  if (kernel_->run_rows == nullptr || columns_.mode != RequantizeMode::kFixedPoint) return false;
  if (s.kernel_w != 3 || s.dilation_w != 1 || s.stride_w > 2 || s.pad_left > 2) return false;
  if (row_groups_ * kernel_->taps_per_cell != kMaxTapsPerCell || unit_lines_ > 2) return false;
  for (const DepthwiseBlock& block : weights_) {
    if (block.tap_groups > tap_groups() && !kernel_->rows_take_sums) return false;
    for (int64_t g = s.kernel_w + 1; g < block.tap_groups; ++g) {
      if (block.offsets[g] <= block.offsets[g - 1]) return false;  // a weight of three parts
    }
  }
  uint8_t* const end = columns_.wide_vectorizable + DivideRoundingUp(s.output_c, 16);
  return std::find(columns_.wide_vectorizable, end, uint8_t{0}) == end;
}

size_t DepthwiseConv2D::CellsBytes() const {
  if (by_rows_) return 0;
  return static_cast<size_t>(int64_t{slice_blocks_} * row_groups_ * cell_columns_ *
                             kDepthwiseCellBytes);
}

size_t DepthwiseConv2D::ExpandedRowBytes() const {
  if (depth_multiplier_ == 1) return 0;
  return static_cast<size_t>(params_.shape.input_w) * static_cast<size_t>(slice_blocks_) *
         kDepthwiseBlock;
}

size_t DepthwiseConv2D::WorkerScratchBytes() const {
  const int32_t rows = by_rows_ ? kMaxTapsPerCell : kernel_->taps_per_cell;
  const size_t expanded = ExpandedRowBytes() * static_cast<size_t>(rows);
  return CellsBytes() + AlignUp(expanded, Buffer::kAlignment);
}

size_t DepthwiseConv2D::ScratchBytes(int threads) const {
  if (conv_) return conv_->ScratchBytes(threads);
  const size_t bytes = WorkerScratchBytes();
  return bytes == 0 ? 0 : Buffer::kAlignment + static_cast<size_t>(threads) * bytes;
}

void DepthwiseConv2D::Run(const uint8_t* input, uint8_t* output, uint8_t* scratch,
                          ThreadPool* pool) const {
  if (conv_) return conv_->Run(input, output, scratch, pool);
  const ConvShape& s = params_.shape;
  if (s.output_h == 0 || s.output_w == 0) return;
  const int64_t image_units = DivideRoundingUp(s.output_h, unit_lines_);
  const int64_t slice_units = s.batch * image_units;
  const int32_t slice_blocks = SliceBlocks(slice_units, pool == nullptr ? 1 : pool->threads());
  const int64_t units = slice_units * DivideRoundingUp(blocks(), slice_blocks);
  scratch += -reinterpret_cast<uintptr_t>(scratch) % Buffer::kAlignment;
  const size_t worker_bytes = WorkerScratchBytes();
  // Parts that are worth handing to another thread.
  constexpr int64_t kPartOutputs = 8 << 10;
  const int64_t least = kPartOutputs / (s.OutputBytes() / units + 1) + 1;
  ParallelRanges(pool, units, least, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int32_t first_line = static_cast<int32_t>(unit % image_units) * unit_lines_;
      const int32_t first_block = static_cast<int32_t>(unit / slice_units) * slice_blocks;
      RunUnit({.input = input,
               .input_end = input + s.InputBytes(),
               .input_line = 0,
               .output = output,
               .output_line = 0,
               .scratch = scratch + static_cast<size_t>(worker) * worker_bytes,
               .image = unit % slice_units / image_units,
               .first_line = first_line,
               .lines = std::min(unit_lines_, s.output_h - first_line),
               .first_block = first_block,
               .blocks = std::min(slice_blocks, blocks() - first_block)});
    }
  });
}

// Blocks of channels that a unit takes. By rows they have nothing in common, so small images of
// many channels have work for all threads.
int32_t DepthwiseConv2D::SliceBlocks(int64_t slice_units, int threads) const {
  if (!by_rows_ || threads == 1) return slice_blocks_;
  const int64_t slices = std::clamp<int64_t>(4 * threads / slice_units, 1, blocks());
  return std::min(slice_blocks_, DivideRoundingUp(blocks(), static_cast<int32_t>(slices)));
}

int32_t DepthwiseConv2D::Channels(const Unit& unit) const {
  return std::min(unit.blocks * kDepthwiseBlock, params_.shape.output_c - FirstChannel(unit));
}

void DepthwiseConv2D::RunUnitRows(const Unit& unit) const {
  const ConvShape& s = params_.shape;
  const int32_t first_channel = FirstChannel(unit);
  const int64_t output_row = unit.image * s.output_h + unit.first_line - unit.output_line;
  DepthwiseRowsArgs args = {.taps = {},
                            .padding = pad_pixel_ + first_channel,
                            .input_w = RowColumns(),
                            .pad_left = s.pad_left,
                            .stride_w = s.stride_w,
                            .type = params_.input_type,
                            .lines = unit.lines,
                            .blocks = weights_.data() + unit.first_block,
                            .line_blocks = blocks(),
                            .pixels = s.output_w,
                            .first_channel = first_channel,
                            .channels = Channels(unit),
                            .columns = &columns_,
                            .output = unit.output + output_row * s.output_w * s.output_c,
                            .output_stride = s.output_c,
                            .output_line_stride = int64_t{s.output_w} * s.output_c};
  const int64_t stride = depth_multiplier_ == 1 ? s.input_c : args.channels;
  for (int32_t t = 0; t < kMaxTapsPerCell; ++t) {
    args.taps[t] = RowTap(unit, t, t);
    if (args.taps[t].pixels != pad_pixel_) continue;
    args.taps[t] = {pad_line_.data(), pad_line_.data() + pad_line_.size(), stride};
  }
  kernel_->run_rows(args);
}

void DepthwiseConv2D::RunUnit(const Unit& unit) const {
  if (by_rows_) return RunUnitRows(unit);
  const ConvShape& s = params_.shape;
  const int64_t row_group_bytes = cell_columns_ * kDepthwiseCellBytes;
  for (int32_t row_group = 0; row_group < row_groups_; ++row_group) {
    InterleaveRows(unit, row_group, unit.scratch + row_group * row_group_bytes);
  }
  const int32_t first_channel = FirstChannel(unit);
  for (int32_t line = 0; line < unit.lines; ++line) {
    const int64_t output_row = unit.image * s.output_h + unit.first_line - unit.output_line + line;
    kernel_->run({.cells = unit.scratch,
                  .block_stride = row_groups_ * row_group_bytes,
                  .pixel_step = s.stride_w * kDepthwiseCellBytes,
                  .blocks = weights_.data() + line * blocks() + unit.first_block,
                  .pixels = s.output_w,
                  .first_channel = first_channel,
                  .channels = Channels(unit),
                  .columns = &columns_,
                  .output = unit.output + output_row * s.output_w * s.output_c,
                  .output_stride = s.output_c});
  }
}

DepthwiseTap DepthwiseConv2D::Padding() const {
  return {pad_pixel_, pad_pixel_ + blocks() * kDepthwiseBlock, 0};
}

// The cells of one group of kernel rows: padding left of the image, the image, padding right.
void DepthwiseConv2D::InterleaveRows(const Unit& unit, int32_t row_group, uint8_t* cells) const {
  const ConvShape& s = params_.shape;
  InterleaveArgs args = {
      .taps = {Padding(), Padding(), Padding(), Padding()},
      .pixels = static_cast<int32_t>(std::min<int64_t>(s.pad_left, cell_columns_)),
      .channels = Channels(unit),
      .cells = cells,
      .block_stride = row_groups_ * cell_columns_ * kDepthwiseCellBytes,
      .type = params_.input_type};
  const auto next = [&](int64_t pixels) {
    args.cells += args.pixels * kDepthwiseCellBytes;
    args.pixels = static_cast<int32_t>(pixels);
  };
  int64_t left = cell_columns_ - args.pixels;
  if (args.pixels > 0) kernel_->interleave(args);

  next(std::min<int64_t>(left, s.input_w));
  left -= args.pixels;
  const InterleaveArgs outside = args;
  for (int32_t t = 0; t < kernel_->taps_per_cell; ++t) {
    args.taps[t] = RowTap(unit, row_group * kernel_->taps_per_cell + t, t);
  }
  if (args.pixels > 0) kernel_->interleave(args);

  args = outside;
  next(left);
  if (args.pixels > 0) kernel_->interleave(args);
}

// The activations of the unit's channels in row `row` under its first output row, as tap `tap` of a
// cell.
DepthwiseTap DepthwiseConv2D::RowTap(const Unit& unit, int32_t row, int32_t tap) const {
  const ConvShape& s = params_.shape;
  const int64_t y = int64_t{unit.first_line} * s.stride_h - s.pad_top + int64_t{row} * s.dilation_h;
  const int32_t rows = (unit.lines - 1) * s.stride_h + s.kernel_h;  // dilated only if 1 line
  if (row >= rows || y < 0 || y >= s.input_h) {
    return Padding();
  }
  const int32_t first = FirstChannel(unit);
  const uint8_t* from =
      unit.input + (unit.image * s.input_h + y - unit.input_line) * s.input_w * s.input_c;
  if (depth_multiplier_ == 1) {
    return {from + first, unit.input_end, s.input_c};
  }
  // Each input channel once per output channel, so that the kernels need not know.
  const int32_t channels = Channels(unit);
  uint8_t* const expanded =
      unit.scratch + CellsBytes() + static_cast<size_t>(tap) * ExpandedRowBytes();
  uint8_t* to = expanded;
  for (int32_t x = 0; x < s.input_w; ++x, from += s.input_c) {
    int32_t channel = first / depth_multiplier_;
    int32_t copies = depth_multiplier_ - first % depth_multiplier_;
    for (int32_t c = 0; c < channels; ++c) {
      *to++ = from[channel];
      if (--copies == 0) {
        ++channel;
        copies = depth_multiplier_;
      }
    }
  }
  return {expanded, to, channels};
}

const char* DepthwiseConv2D::kernel_name() const {
  return conv_ ? conv_->kernel_name() : kernel_->name;
}

}  // namespace atollrt
