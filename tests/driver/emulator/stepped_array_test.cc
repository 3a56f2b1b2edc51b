// SPDX-License-Identifier: Apache-2.0
//
// The stepped array against a plain loop over docs/isa.md, against the reference kernel, against
// the closed form of its cycles, and against the example that the page works out by hand.
#include "driver/emulator/stepped_array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <deque>
#include <iterator>
#include <string>

#include "driver/emulator/isa_arithmetic.h"
#include "runtime/kernels/conv2d.h"
#include "tests/driver/emulator/random_scale.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

// ---- An instruction with everything that it reads ----

template <typename Op>
struct LayerOf {
  Op op;
  Segments segments;
  std::vector<uint8_t> memory;

  size_t At(uint32_t address) const { return segments.Resolve(address); }
  size_t RecordAt(uint32_t channel) const {
    return At(op.channel_address) + channel * kChannelRecordBytes;
  }
  isa::ChannelRecord Record(uint32_t channel) const {
    return isa::ReadChannelRecord(std::span(memory).subspan(RecordAt(channel)));
  }
  bool Has(uint32_t flag) const { return (op.flags & flag) != 0; }
};
using Layer = LayerOf<Conv2DInstruction>;
using TransposedLayer = LayerOf<TransposeConv2DInstruction>;

template <typename Op>
size_t InputBytes(const Op& op) {
  return size_t{op.batch} * op.input_h * op.input_w * op.input_c;
}
size_t WeightBytes(const Conv2DInstruction& op) {
  return size_t{op.output_c} * op.kernel_h * op.kernel_w * (op.input_c / op.groups);
}
size_t WeightBytes(const TransposeConv2DInstruction& op) {
  return size_t{op.output_c} * op.kernel_h * op.kernel_w * op.input_c;
}
template <typename Op>
size_t OutputBytes(const Op& op) {
  return size_t{op.batch} * op.output_h * op.output_w * op.output_c;
}

void StoreWord(uint8_t* to, uint32_t word) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(word >> (8 * i));
}

template <typename Op>
void SetFixedPoint(LayerOf<Op>* layer, uint32_t channel, int32_t bias, int32_t multiplier,
                   int32_t exponent) {
  uint8_t* record = &layer->memory[layer->RecordAt(channel)];
  StoreWord(record, static_cast<uint32_t>(bias));
  StoreWord(record + 4, static_cast<uint32_t>(multiplier));
  StoreWord(record + 8, static_cast<uint32_t>(exponent));
  StoreWord(record + 12, 0);
}

template <typename Op>
void SetDouble(LayerOf<Op>* layer, uint32_t channel, int32_t bias, double scale) {
  uint8_t* record = &layer->memory[layer->RecordAt(channel)];
  const uint64_t bits = std::bit_cast<uint64_t>(scale);
  StoreWord(record, static_cast<uint32_t>(bias));
  StoreWord(record + 4, 0);
  StoreWord(record + 8, static_cast<uint32_t>(bits));
  StoreWord(record + 12, static_cast<uint32_t>(bits >> 32));
}

// Gives the tensors consecutive addresses, a memory that they fill, and every channel a multiplier
// of exactly 1. Order: weights, channel records, input, output.
template <typename Op>
void PlaceTensors(LayerOf<Op>* layer) {
  Op& op = layer->op;
  const size_t parameter_bytes = WeightBytes(op) + op.output_c * kChannelRecordBytes;
  op.weight_address = kParameterSegment;
  op.channel_address = kParameterSegment + static_cast<uint32_t>(WeightBytes(op));
  op.input_address = 0;
  op.output_address = static_cast<uint32_t>(InputBytes(op));
  layer->segments.activation_base = static_cast<uint32_t>(parameter_bytes);
  layer->memory.assign(parameter_bytes + InputBytes(op) + OutputBytes(op), 0);
  for (uint32_t c = 0; c < op.output_c; ++c) SetFixedPoint(layer, c, 0, 1 << 30, 1);
}

// An int8 layer without padding, strides or zero points.
Layer MatrixProduct(uint32_t positions, uint32_t products, uint32_t channels) {
  Layer layer;
  Conv2DInstruction& op = layer.op;
  op.batch = positions;
  op.input_h = op.input_w = op.output_h = op.output_w = 1;
  op.input_c = products;
  op.output_c = channels;
  op.kernel_h = op.kernel_w = op.stride_h = op.stride_w = op.dilation_h = op.dilation_w = 1;
  op.groups = 1;
  op.clamp_min = -128;
  op.clamp_max = 127;
  PlaceTensors(&layer);
  return layer;
}

// ---- docs/isa.md once more, as plainly as it can be said ----

template <typename Op>
int64_t PageElement(const LayerOf<Op>& layer, int64_t at, uint32_t unsigned_flag,
                    int32_t zero_point) {
  return isa::Value(layer.memory[static_cast<size_t>(at)], layer.Has(unsigned_flag)) - zero_point;
}

int64_t PageAccumulator(const Layer& layer, int64_t n, int64_t y, int64_t x, int64_t c) {
  const Conv2DInstruction& op = layer.op;
  const int64_t input = static_cast<int64_t>(layer.At(op.input_address));
  const int64_t weights = static_cast<int64_t>(layer.At(op.weight_address));
  const int64_t group_c = op.input_c / op.groups;
  const int64_t g = c / (op.output_c / op.groups);
  int64_t sum = 0;
  for (int64_t ky = 0; ky < op.kernel_h; ++ky) {
    for (int64_t kx = 0; kx < op.kernel_w; ++kx) {
      const int64_t iy = y * op.stride_h - op.pad_top + ky * op.dilation_h;
      const int64_t ix = x * op.stride_w - op.pad_left + kx * op.dilation_w;
      if (iy < 0 || iy >= op.input_h || ix < 0 || ix >= op.input_w) continue;
      const int64_t cell = input + ((n * op.input_h + iy) * op.input_w + ix) * op.input_c;
      const int64_t tap = weights + ((c * op.kernel_h + ky) * op.kernel_w + kx) * group_c;
      for (int64_t k = 0; k < group_c; ++k) {
        sum += PageElement(layer, cell + g * group_c + k, kFlagInputUnsigned, op.input_zero_point) *
               PageElement(layer, tap + k, kFlagWeightsUnsigned, op.weight_zero_point);
      }
    }
  }
  return isa::Wrap(sum);
}

// The memory after the instruction, which computes accumulator(n, y, x, c).
template <typename Op, typename Accumulator>
std::vector<uint8_t> PageOutput(const LayerOf<Op>& layer, const Accumulator& accumulator) {
  const Op& op = layer.op;
  std::vector<uint8_t> memory = layer.memory;
  size_t to = layer.At(op.output_address);
  for (uint32_t n = 0; n < op.batch; ++n) {
    for (uint32_t y = 0; y < op.output_h; ++y) {
      for (uint32_t x = 0; x < op.output_w; ++x) {
        for (uint32_t c = 0; c < op.output_c; ++c) {
          memory[to++] = isa::Activate(op, layer.Record(c), accumulator(n, y, x, c));
        }
      }
    }
  }
  return memory;
}

std::vector<uint8_t> PageRun(const Layer& layer) {
  return PageOutput(layer, [&](int64_t n, int64_t y, int64_t x, int64_t c) {
    return PageAccumulator(layer, n, y, x, c);
  });
}

std::vector<uint8_t> PageRun(const TransposedLayer& layer) {
  const TransposeConv2DInstruction& op = layer.op;
  const int64_t input = static_cast<int64_t>(layer.At(op.input_address));
  const int64_t weights = static_cast<int64_t>(layer.At(op.weight_address));
  std::vector<int64_t> sums(OutputBytes(op));
  for (int64_t n = 0; n < op.batch; ++n) {
    for (int64_t iy = 0; iy < op.input_h; ++iy) {
      for (int64_t ix = 0; ix < op.input_w; ++ix) {
        for (int64_t ky = 0; ky < op.kernel_h; ++ky) {
          for (int64_t kx = 0; kx < op.kernel_w; ++kx) {
            const int64_t y = iy * op.stride_h - op.pad_top + ky;
            const int64_t x = ix * op.stride_w - op.pad_left + kx;
            if (y < 0 || y >= op.output_h || x < 0 || x >= op.output_w) continue;
            const int64_t from = input + ((n * op.input_h + iy) * op.input_w + ix) * op.input_c;
            const int64_t to = ((n * op.output_h + y) * op.output_w + x) * op.output_c;
            for (int64_t c = 0; c < op.output_c; ++c) {
              const int64_t tap =
                  weights + ((c * op.kernel_h + ky) * op.kernel_w + kx) * op.input_c;
              for (int64_t k = 0; k < op.input_c; ++k) {
                sums[static_cast<size_t>(to + c)] +=
                    PageElement(layer, from + k, kFlagInputUnsigned, op.input_zero_point) *
                    PageElement(layer, tap + k, kFlagWeightsUnsigned, op.weight_zero_point);
              }
            }
          }
        }
      }
    }
  }
  return PageOutput(layer, [&](int64_t n, int64_t y, int64_t x, int64_t c) {
    const int64_t position = (n * op.output_h + y) * op.output_w + x;
    return isa::Wrap(sums[static_cast<size_t>(position * op.output_c + c)]);
  });
}

uint64_t PageCycles(const TransposeConv2DInstruction& op, uint64_t rows, uint64_t columns) {
  const uint64_t m = uint64_t{op.batch} * op.input_h * op.input_w;
  const uint64_t p = uint64_t{op.batch} * op.output_h * op.output_w;
  const uint64_t channel_tiles = (op.output_c + columns - 1) / columns;
  const uint64_t n = uint64_t{op.kernel_h} * op.kernel_w * ((op.input_c + rows - 1) / rows);
  return n * channel_tiles * std::max(m, rows) + channel_tiles * p + rows + columns - 2;
}

uint64_t PageCycles(const Conv2DInstruction& op, uint64_t rows, uint64_t columns) {
  const uint64_t m = uint64_t{op.batch} * op.output_h * op.output_w;
  const uint64_t k = uint64_t{op.kernel_h} * op.kernel_w * (op.input_c / op.groups);
  const uint64_t n = op.output_c / op.groups;
  const uint64_t tiles = op.groups * ((k + rows - 1) / rows) * ((n + columns - 1) / columns);
  return tiles * std::max(m, rows) + rows + columns - 2;
}

// ---- The same layer for the reference kernel ----

Conv2DParams KernelParams(const Layer& layer) {
  const Conv2DInstruction& op = layer.op;
  const auto size = [](uint32_t value) { return static_cast<int32_t>(value); };
  Conv2DParams params;
  params.shape = {.batch = size(op.batch),
                  .input_h = size(op.input_h),
                  .input_w = size(op.input_w),
                  .input_c = size(op.input_c),
                  .output_h = size(op.output_h),
                  .output_w = size(op.output_w),
                  .output_c = size(op.output_c),
                  .kernel_h = size(op.kernel_h),
                  .kernel_w = size(op.kernel_w),
                  .stride_h = size(op.stride_h),
                  .stride_w = size(op.stride_w),
                  .dilation_h = size(op.dilation_h),
                  .dilation_w = size(op.dilation_w),
                  .pad_top = size(op.pad_top),
                  .pad_left = size(op.pad_left),
                  .groups = size(op.groups)};
  params.input_type = layer.Has(kFlagInputUnsigned) ? ByteType::kUInt8 : ByteType::kInt8;
  params.weight_type = layer.Has(kFlagWeightsUnsigned) ? ByteType::kUInt8 : ByteType::kInt8;
  params.input_zero_point = op.input_zero_point;
  params.weight_zero_point = op.weight_zero_point;
  params.weights = &layer.memory[layer.At(op.weight_address)];
  const bool is_double = layer.Has(kFlagDouble);
  params.output.mode = is_double ? RequantizeMode::kDouble : RequantizeMode::kFixedPoint;
  params.output.zero_point = op.output_zero_point;
  params.output.clamp = {op.clamp_min, op.clamp_max};
  for (uint32_t c = 0; c < op.output_c; ++c) {
    const isa::ChannelRecord record = layer.Record(c);
    OutputChannel channel;
    channel.bias = static_cast<int32_t>(record.bias);
    if (is_double) {
      channel.scale = record.scale;
    } else {
      channel.multiplier = {static_cast<int32_t>(record.multiplier),
                            static_cast<int32_t>(record.exponent)};
    }
    params.output.channels.push_back(channel);
  }
  return params;
}

std::vector<uint8_t> KernelConv2D(const Layer& layer) {
  std::vector<uint8_t> memory = layer.memory;
  ReferenceConv2D(KernelParams(layer), &layer.memory[layer.At(layer.op.input_address)],
                  &memory[layer.At(layer.op.output_address)]);
  return memory;
}

// ---- Random layers ----

template <typename Op>
void RandomRecords(Rng& rng, LayerOf<Op>* layer) {
  for (uint32_t c = 0; c < layer->op.output_c; ++c) {
    const int32_t bias = rng.OneIn(8) ? rng.Int32(INT32_MIN, INT32_MAX) : rng.Int32(-3000, 3000);
    if (layer->Has(kFlagDouble)) {
      SetDouble(layer, c, bias, RandomScale(rng));
      continue;
    }
    const int32_t multiplier =
        rng.OneIn(6) ? rng.Pick({0, 1, 1 << 30, INT32_MAX}) : rng.Int32(1 << 30, INT32_MAX);
    const int32_t exponent = rng.OneIn(6)   ? rng.Pick({-31, -30, 1, 31, 32, 33, 64, 127})
                             : rng.OneIn(4) ? rng.Int32(-31, 127)
                                            : rng.Int32(-12, 1);
    SetFixedPoint(layer, c, bias, multiplier, exponent);
  }
}

template <typename Op>
void RandomArithmetic(Rng& rng, Op* op) {
  op->flags = static_cast<uint32_t>(rng.Int(0, 7));
  const auto zero_point = [&](uint32_t unsigned_flag) {
    const int32_t low = (op->flags & unsigned_flag) != 0 ? 0 : -128;
    return rng.OneIn(4) ? rng.Pick({low, low + 255}) : rng.Int32(low, low + 255);
  };
  op->input_zero_point = zero_point(kFlagInputUnsigned);
  op->weight_zero_point = rng.OneIn(3) ? 0 : zero_point(kFlagWeightsUnsigned);
  op->output_zero_point = zero_point(kFlagInputUnsigned);
  op->clamp_min = (op->flags & kFlagInputUnsigned) != 0 ? 0 : -128;
  op->clamp_max = op->clamp_min + 255;
  if (rng.OneIn(3)) {
    op->clamp_min = rng.Int32(op->clamp_min, op->clamp_max);
    op->clamp_max = rng.Int32(op->clamp_min, op->clamp_max);
  }
}

void RandomShape(Rng& rng, Conv2DInstruction* op) {
  const auto size = [&](int64_t low, int64_t high) {
    return static_cast<uint32_t>(rng.Int(low, high));
  };
  op->groups = rng.OneIn(3) ? size(2, 3) : 1;
  op->input_c = op->groups * (rng.OneIn(5) ? size(10, 80) : size(1, 9));
  op->output_c = op->groups * (rng.OneIn(5) ? size(10, 80) : size(1, 9));
  op->kernel_h = size(1, 3);
  op->kernel_w = size(1, 3);
  op->stride_h = size(1, 3);
  op->stride_w = size(1, 3);
  op->dilation_h = size(1, 3);
  op->dilation_w = size(1, 3);
  op->pad_top = size(0, 3);
  op->pad_left = size(0, 3);
  op->batch = rng.OneIn(3) ? size(2, 3) : 1;
  op->input_h = size(1, 9);
  op->input_w = size(1, 9);
  // Not tied to the input: windows may hang over any edge or lie outside altogether.
  op->output_h = size(1, 6);
  op->output_w = size(1, 6);
}

// Also strides beyond the filter, and outputs that no tap reaches.
void RandomShape(Rng& rng, TransposeConv2DInstruction* op) {
  const auto size = [&](int64_t low, int64_t high) {
    return static_cast<uint32_t>(rng.Int(low, high));
  };
  op->input_c = rng.OneIn(5) ? size(10, 80) : size(1, 9);
  op->output_c = rng.OneIn(5) ? size(10, 80) : size(1, 9);
  op->kernel_h = size(1, 4);
  op->kernel_w = size(1, 4);
  op->stride_h = size(1, 3);
  op->stride_w = size(1, 5);
  op->pad_top = size(0, 5);
  op->pad_left = size(0, 5);
  op->batch = rng.OneIn(3) ? size(2, 3) : 1;
  op->input_h = size(1, 6);
  op->input_w = size(1, 6);
  op->output_h = size(1, 12);
  op->output_w = size(1, 12);
}

// Every byte of memory is random, so that reading a wrong one shows. Tensors have gaps between
// them, in either segment; the last may touch the end of the memory.
template <typename Op>
LayerOf<Op> RandomLayer(Rng& rng) {
  LayerOf<Op> layer;
  Op& op = layer.op;
  RandomShape(rng, &op);
  RandomArithmetic(rng, &op);
  layer.segments.parameter_base = static_cast<uint32_t>(rng.Int(0, 20));
  layer.segments.activation_base = static_cast<uint32_t>(rng.Int(0, 20));
  size_t end = 20;
  const auto place = [&](uint32_t* address, size_t bytes) {
    end += static_cast<size_t>(rng.Int(0, 9));
    const bool parameters = rng.OneIn(2);
    const uint32_t base =
        parameters ? layer.segments.parameter_base : layer.segments.activation_base;
    *address = static_cast<uint32_t>(end - base) | (parameters ? kParameterSegment : 0);
    end += bytes;
  };
  const bool output_first = rng.OneIn(2);
  if (output_first) place(&op.output_address, OutputBytes(op));
  place(&op.input_address, InputBytes(op));
  place(&op.weight_address, WeightBytes(op));
  place(&op.channel_address, op.output_c * kChannelRecordBytes);
  if (!output_first) place(&op.output_address, OutputBytes(op));
  layer.memory.resize(end + static_cast<size_t>(rng.OneIn(2) ? 0 : rng.Int(1, 9)));
  rng.Fill(layer.memory);
  RandomRecords(rng, &layer);
  return layer;
}

template <typename Op>
std::string Describe(const LayerOf<Op>& layer, const SteppedArray& array) {
  return std::to_string(array.rows()) + "x" + std::to_string(array.columns()) + " array, " +
         Disassemble(Instruction{layer.op});
}

// Compares the whole memory: what is no output must not change.
template <typename Op>
void ExpectRun(const LayerOf<Op>& layer, const std::vector<uint8_t>& expected,
               SteppedArray* array) {
  std::vector<uint8_t> memory = layer.memory;
  const uint64_t cycles = array->Run(layer.op, layer.segments, memory);
  EXPECT_TRUE(memory == expected) << Describe(layer, *array);
  EXPECT_EQ(cycles, PageCycles(layer.op, array->rows(), array->columns()))
      << Describe(layer, *array);
}

// ---- Tests ----

// One array of each size, used for all layers, so that whatever one leaves behind meets the next.
std::deque<SteppedArray> Arrays() {
  std::deque<SteppedArray> arrays;
  const uint32_t sizes[][2] = {{4, 4}, {8, 16}, {32, 32}, {64, 64}, {16, 2}, {2, 33}, {1, 1}};
  for (const auto& [rows, columns] : sizes) arrays.emplace_back(rows, columns);
  return arrays;
}

TEST(SteppedArray, EqualsThePageTheKernelAndTheClosedFormOnRandomLayers) {
  Rng rng(TestSeed(0xA7011));
  std::deque<SteppedArray> arrays = Arrays();
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const Layer layer = RandomLayer<Conv2DInstruction>(rng);
    const std::vector<uint8_t> expected = PageRun(layer);
    ASSERT_TRUE(KernelConv2D(layer) == expected) << Disassemble(Instruction{layer.op});
    for (SteppedArray& array : arrays) {
      // A single cell takes a cycle for every product of the layer.
      if (array.rows() == 1 && i % 8 != 0) continue;
      ExpectRun(layer, expected, &array);
    }
  }
}

TEST(SteppedArray, EqualsThePageAndTheClosedFormOnRandomTransposedLayers) {
  Rng rng(TestSeed(0xA7012));
  std::deque<SteppedArray> arrays = Arrays();
  // Also after another kind of instruction.
  const Layer other = RandomLayer<Conv2DInstruction>(rng);
  const std::vector<uint8_t> other_expected = PageRun(other);
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const TransposedLayer layer = RandomLayer<TransposeConv2DInstruction>(rng);
    const std::vector<uint8_t> expected = PageRun(layer);
    for (SteppedArray& array : arrays) {
      if (array.rows() == 1 && i % 8 != 0) continue;
      ExpectRun(layer, expected, &array);
      if (i % 16 == 0) ExpectRun(other, other_expected, &array);
    }
  }
}

// Nothing but the drains: a single input position that the pad cuts off.
TEST(SteppedArray, GivesTheBiasWhereNoTapReaches) {
  TransposedLayer layer;
  layer.op = {.batch = 1,
              .input_h = 1,
              .input_w = 1,
              .input_c = 3,
              .output_h = 2,
              .output_w = 3,
              .output_c = 5,
              .kernel_h = 1,
              .kernel_w = 1,
              .stride_h = 2,
              .stride_w = 2,
              .pad_top = 1,
              .clamp_min = -128,
              .clamp_max = 127};
  PlaceTensors(&layer);
  std::fill_n(layer.memory.begin(), 15, uint8_t{1});  // the weights
  for (uint32_t c = 0; c < 5; ++c) SetFixedPoint(&layer, c, static_cast<int32_t>(c), 1 << 30, 1);
  std::vector<uint8_t> expected = layer.memory;
  for (size_t i = 0; i < 30; ++i) expected[expected.size() - 30 + i] = static_cast<uint8_t>(i % 5);
  SteppedArray array(2, 2);
  ExpectRun(layer, expected, &array);  // 3 drains of 6 cycles, 2 tiles of 2 cycles in each, and 2
  EXPECT_EQ(PageCycles(layer.op, 2, 2), 3u * (2 * 2 + 6) + 2);
}

TEST(SteppedArray, TakesTheCyclesOfTheClosedFormAroundTheSizeOfATile) {
  SteppedArray array(4, 3);
  for (uint32_t m = 1; m <= 9; ++m) {
    for (uint32_t k = 1; k <= 9; ++k) {
      for (uint32_t n = 1; n <= 7; ++n) {
        Layer layer = MatrixProduct(m, k, n);
        EXPECT_EQ(array.Run(layer.op, layer.segments, layer.memory), PageCycles(layer.op, 4, 3))
            << m << " positions, " << k << " products, " << n << " channels";
      }
    }
  }
}

TEST(SteppedArray, WrapsTheLargestSums) {
  // 65536 products of 255 * 255, or of 255 * -255, leave 32 bits.
  for (const uint8_t weight : {uint8_t{255}, uint8_t{0}}) {
    Layer layer = MatrixProduct(1, 65536, 1);
    layer.op.flags = kFlagInputUnsigned | kFlagWeightsUnsigned;
    layer.op.weight_zero_point = 255 - weight;
    layer.op.clamp_min = 0;
    layer.op.clamp_max = 255;
    layer.op.output_zero_point = 128;
    std::fill_n(layer.memory.begin(), 65536, weight);
    std::fill_n(layer.memory.begin() + layer.segments.activation_base, 65536, uint8_t{255});
    SetFixedPoint(&layer, 0, 0, 1 << 30, -24);
    // 65536 * 65025 - 2^32 = -33488896 is -0.998 * 2^25.
    std::vector<uint8_t> expected = layer.memory;
    expected.back() = weight == 255 ? 127 : 129;
    SteppedArray array(64, 64);
    ExpectRun(layer, expected, &array);
  }
}

TEST(SteppedArray, AddsNothingWhereWindowsLieOutsideTheImage) {
  Layer layer = MatrixProduct(1, 3, 2);
  layer.op.output_w = 4;
  layer.op.pad_left = 2;
  layer.op.input_zero_point = -5;
  PlaceTensors(&layer);
  std::fill_n(layer.memory.begin(), 6, uint8_t{1});  // the weights
  SetFixedPoint(&layer, 0, 10, 1 << 30, 1);
  SetFixedPoint(&layer, 1, 11, 1 << 30, 1);
  std::vector<uint8_t> expected = layer.memory;
  const uint8_t outputs[] = {10, 11, 10, 11, 25, 26, 10, 11};  // 15 = 3 * (0 - -5)
  std::copy(std::begin(outputs), std::end(outputs), expected.end() - 8);
  SteppedArray array(2, 2);
  ExpectRun(layer, expected, &array);
}

// The example of docs/isa.md §5, "How the array computes".
class SteppedArrayExample : public testing::Test {
 protected:
  SteppedArrayExample() : layer_(MatrixProduct(3, 4, 2)) {
    const int positions[] = {1, 2, 3, 4, 2, 0, 1, 3, 0, 1, -1, 2};
    const int channels[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const auto byte = [](int value) { return static_cast<uint8_t>(value); };
    std::transform(std::begin(channels), std::end(channels), layer_.memory.begin(), byte);
    std::transform(std::begin(positions), std::end(positions),
                   layer_.memory.begin() + layer_.segments.activation_base, byte);
  }

  uint64_t Run() { return array_.Run(layer_.op, layer_.segments, layer_.memory); }

  Layer layer_;
  SteppedArray array_{2, 2};
};

TEST_F(SteppedArrayExample, HoldsTheRegistersOfThePageInEachCycle) {
  // The activations of (0,0) and (1,0), then for (0,0), (0,1), (1,0) and (1,1).
  struct Registers {
    int activations[2];
    int active[4];
    int shadow[4];
    int sums[4];
  };
  const Registers expected[] = {
      {{1, 0}, {1, 0, 0, 0}, {1, 5, 2, 6}, {1, 0, 0, 0}},
      {{2, 2}, {1, 5, 2, 0}, {4, 5, 2, 6}, {2, 5, 5, 0}},
      {{0, 0}, {1, 5, 2, 6}, {3, 8, 4, 6}, {0, 10, 2, 17}},
      {{3, 1}, {3, 5, 2, 6}, {3, 7, 4, 8}, {9, 0, 2, 10}},
      {{1, 4}, {3, 7, 4, 6}, {3, 7, 4, 8}, {3, 21, 25, 6}},
      {{-1, 3}, {3, 7, 4, 8}, {3, 7, 4, 8}, {-3, 7, 15, 53}},
      {{0, 2}, {3, 7, 4, 8}, {3, 7, 4, 8}, {0, -7, 5, 31}},
      {{0, 0}, {3, 7, 4, 8}, {3, 7, 4, 8}, {0, 0, 0, 9}},
  };
  uint64_t cycles = 0;
  array_.set_observer([&](uint64_t cycle) {
    ASSERT_EQ(cycle, cycles++);
    ASSERT_LT(cycle, std::size(expected));
    const Registers& now = expected[cycle];
    for (uint32_t row = 0; row < 2; ++row) {
      EXPECT_EQ(array_.Activation(row, 0), now.activations[row]) << "cycle " << cycle;
      for (uint32_t column = 0; column < 2; ++column) {
        const uint32_t cell = 2 * row + column;
        EXPECT_EQ(array_.ActiveWeight(row, column), now.active[cell]) << "cycle " << cycle;
        EXPECT_EQ(array_.ShadowWeight(row, column), now.shadow[cell]) << "cycle " << cycle;
        EXPECT_EQ(array_.PartialSum(row, column), now.sums[cell]) << "cycle " << cycle;
      }
    }
  });
  EXPECT_EQ(Run(), 8u);
  EXPECT_EQ(cycles, 8u);
}

TEST_F(SteppedArrayExample, WritesTheSumsOfThePage) {
  Run();
  const std::vector<uint8_t> output(layer_.memory.end() - 6, layer_.memory.end());
  EXPECT_EQ(output, (std::vector<uint8_t>{30, 70, 17, 41, 7, 15}));
}

// A layer of a real model's size. Prints how fast the array is stepped (CPU time, best of
// five), which fails nothing.
TEST(SteppedArray, RunsALayerOfARealModel) {
  Layer layer = MatrixProduct(1, 64, 64);
  Conv2DInstruction& op = layer.op;
  op.input_h = op.input_w = op.output_h = op.output_w = 28;
  op.kernel_h = op.kernel_w = 3;
  op.pad_top = op.pad_left = 1;
  PlaceTensors(&layer);
  Rng rng(TestSeed(28));
  rng.Fill(layer.memory);
  for (uint32_t c = 0; c < op.output_c; ++c) SetFixedPoint(&layer, c, 100, 1500000000, -10);
  const std::vector<uint8_t> expected = KernelConv2D(layer);
  SteppedArray array(64, 64);
  double seconds = 1e9;
  for (int run = 0; run < 5; ++run) {
    const std::clock_t start = std::clock();
    ExpectRun(layer, expected, &array);
    seconds = std::min(seconds, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::printf("64x64 array: %.2f million cycles per second\n",
              static_cast<double>(PageCycles(op, 64, 64)) / seconds / 1e6);
}

}  // namespace
}  // namespace atollrt
