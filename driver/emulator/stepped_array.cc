// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/stepped_array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "runtime/base/check.h"

namespace atollrt {
namespace {

// ---- Arithmetic of docs/isa.md §3, on its own on purpose ----

int32_t WrapToInt32(int64_t x) { return static_cast<int32_t>(static_cast<uint32_t>(x)); }

int32_t Srdhm(int32_t a, int32_t b) {
  if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
  return static_cast<int32_t>((int64_t{a} * b + (int64_t{1} << 30)) >> 31);
}

int32_t Rdpot(int32_t x, int32_t n) {
  const int64_t mask = (int64_t{1} << n) - 1;
  const int64_t threshold = (mask >> 1) + (x < 0);
  return static_cast<int32_t>((int64_t{x} >> n) + ((x & mask) > threshold));
}

int32_t Mbqm(int32_t x, int32_t multiplier, int32_t exponent) {
  if (exponent <= 0) return Rdpot(Srdhm(x, multiplier), -exponent);
  return Srdhm(WrapToInt32(int64_t{x} << (exponent % 32)), multiplier);
}

// A byte as a 9-bit operand of the array: its value less the zero point.
int16_t Operand(uint8_t byte, bool is_unsigned, int32_t zero_point) {
  const int32_t value = is_unsigned || byte < 128 ? byte : byte - 256;
  return static_cast<int16_t>(value - zero_point);
}

// ---- The instruction as a loop nest over weight tiles ----

// One weight tile: R products by C output channels.
struct Tile {
  uint32_t group = 0;
  uint32_t n_tile = 0;
  uint32_t k_tile = 0;
};

// A tile on its way through the array. In cycle `age` of its slot, cell (0, 0) multiplies position
// `age` of the output; cell (row, column) is row + column cycles behind. Negative while the weights
// come in.
struct Slot {
  Tile tile;
  int64_t age = 0;
};

// Indices first ... end - 1, empty if end <= first.
struct Range {
  int64_t first;
  int64_t end;
};

// The edges are skewed: row or column i is i cycles behind. Of `count` of them, those which are now
// in the first `length` cycles of what index 0 began `age` cycles ago.
Range InFirstCycles(int64_t age, int64_t length, int64_t count) {
  return {std::max<int64_t>(age - (length - 1), 0), std::min(age + 1, count)};
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The instruction's sizes and addresses, and the order of its tiles. 64 bits everywhere.
struct LoopNest {
  LoopNest(const Conv2DInstruction& op, uint32_t parameter_base, uint32_t activation_base,
           const SteppedArray& array)
      : instruction(op),
        rows(array.rows()),
        columns(array.columns()),
        group_c(op.input_c / op.groups),
        m(int64_t{op.batch} * op.output_h * op.output_w),
        k(int64_t{op.kernel_h} * op.kernel_w * group_c),
        n(op.output_c / op.groups),
        k_tiles(CeilDivide(k, rows)),
        n_tiles(CeilDivide(n, columns)),
        slot_cycles(std::max(m, rows)) {
    const auto resolve = [&](uint32_t address) {
      const bool parameters = (address & kParameterSegment) != 0;
      return size_t{parameters ? parameter_base : activation_base} + (address & ~kParameterSegment);
    };
    input = resolve(op.input_address);
    weights = resolve(op.weight_address);
    channels = resolve(op.channel_address);
    output = resolve(op.output_address);
  }

  bool IsPast(const Tile& tile) const { return tile.group == instruction.groups; }
  Tile After(Tile tile) const {
    if (++tile.k_tile < k_tiles) return tile;
    tile.k_tile = 0;
    if (++tile.n_tile < n_tiles) return tile;
    tile.n_tile = 0;
    ++tile.group;
    return tile;
  }

  const Conv2DInstruction& instruction;
  int64_t rows, columns;
  int64_t group_c;  // input channels of a group
  int64_t m, k, n;  // of each group's matrix product
  int64_t k_tiles, n_tiles;
  int64_t slot_cycles;  // from one tile to the next: its positions pass, the next weights arrive
  size_t input, weights, channels, output;  // offsets in memory
};

// ---- Top edge: weights ----

// Drives the tops of the columns in which weights of `slot` enter in this cycle. The weight of the
// last row comes first.
void DriveWeights(const LoopNest& nest, const Slot& slot, std::span<const uint8_t> memory,
                  int16_t* tops) {
  const Range entering = InFirstCycles(slot.age + nest.rows, nest.rows, nest.columns);
  for (int64_t column = entering.first; column < entering.end; ++column) {
    const int64_t row = nest.rows - 1 - (slot.age + nest.rows - column);
    const int64_t k = slot.tile.k_tile * nest.rows + row;
    const int64_t n = slot.tile.n_tile * nest.columns + column;
    tops[column] = 0;
    if (k >= nest.k || n >= nest.n) continue;
    const int64_t channel = slot.tile.group * nest.n + n;
    tops[column] = Operand(memory[nest.weights + static_cast<size_t>(channel * nest.k + k)],
                           (nest.instruction.flags & kFlagWeightsUnsigned) != 0,
                           nest.instruction.weight_zero_point);
  }
}

// ---- Left edge: activations ----

// Feeds one row: of each output position the input element that product index k_tile * R + row
// needs. Generates the addresses of the implicit im2col by counting.
class ActivationFeeder {
 public:
  void StartTile(const LoopNest& nest, const Tile& tile, int64_t row) {
    const Conv2DInstruction& op = nest.instruction;
    const int64_t k = tile.k_tile * nest.rows + row;
    in_product_ = k < nest.k;
    if (!in_product_) return;
    const int64_t tap = k / nest.group_c;
    tap_y_ = tap / op.kernel_w * op.dilation_h - op.pad_top;
    tap_x_ = tap % op.kernel_w * op.dilation_w - op.pad_left;
    channel_ = tile.group * nest.group_c + k % nest.group_c;
    image_ = y_ = 0;
    StartLine(nest);
  }

  // The operand of the next position; positions outside the image and rows beyond K feed zeros.
  int16_t Next(const LoopNest& nest, std::span<const uint8_t> memory) {
    if (!in_product_) return 0;
    const Conv2DInstruction& op = nest.instruction;
    int16_t activation = 0;
    if (line_inside_ && input_x_ >= 0 && input_x_ < int64_t{op.input_w}) {
      activation = Operand(memory[static_cast<size_t>(line_ + input_x_ * op.input_c)],
                           (op.flags & kFlagInputUnsigned) != 0, op.input_zero_point);
    }
    input_x_ += op.stride_w;
    if (++x_ == op.output_w) {
      if (++y_ == op.output_h) {
        y_ = 0;
        ++image_;
      }
      StartLine(nest);
    }
    return activation;
  }

 private:
  void StartLine(const LoopNest& nest) {
    const Conv2DInstruction& op = nest.instruction;
    const int64_t input_y = int64_t{y_} * op.stride_h + tap_y_;
    line_inside_ = input_y >= 0 && input_y < int64_t{op.input_h};
    if (line_inside_) {
      line_ = static_cast<int64_t>(nest.input) + channel_ +
              (int64_t{image_} * op.input_h + input_y) * op.input_w * op.input_c;
    }
    x_ = 0;
    input_x_ = tap_x_;
  }

  // Of the tile: the filter tap and channel of this row.
  int64_t tap_y_ = 0, tap_x_ = 0;
  int64_t channel_ = 0;
  // Of the output position.
  int64_t line_ = 0;  // offset in memory of this channel at the input row's start
  int64_t input_x_ = 0;
  uint32_t image_ = 0, y_ = 0, x_ = 0;
  bool in_product_ = false;
  bool line_inside_ = false;
};

// ---- Bottom edge: accumulators and activation units ----

// What an activation unit needs to know of its column's output channel.
struct ChannelRecord {
  uint32_t bias = 0;
  int32_t multiplier = 0;
  int32_t exponent = 0;
  double scale = 0;
};

ChannelRecord ReadChannelRecord(std::span<const uint8_t> bytes) {
  const auto word = [&](size_t at) {
    return uint32_t{bytes[at]} | uint32_t{bytes[at + 1]} << 8 | uint32_t{bytes[at + 2]} << 16 |
           uint32_t{bytes[at + 3]} << 24;
  };
  return {word(0), static_cast<int32_t>(word(4)), static_cast<int32_t>(word(8)),
          std::bit_cast<double>(uint64_t{word(12)} << 32 | word(8))};
}

uint8_t Activate(const Conv2DInstruction& op, const ChannelRecord& channel, uint32_t accumulator) {
  const int32_t sum = static_cast<int32_t>(accumulator + channel.bias);
  if ((op.flags & kFlagDouble) != 0) {
    const double y = std::round(static_cast<double>(sum) * channel.scale) + op.output_zero_point;
    const double clamped = std::min<double>(std::max<double>(op.clamp_min, y), op.clamp_max);
    return static_cast<uint8_t>(static_cast<int32_t>(clamped));
  }
  const int32_t y =
      WrapToInt32(int64_t{Mbqm(sum, channel.multiplier, channel.exponent)} + op.output_zero_point);
  return static_cast<uint8_t>(std::min(std::max(y, op.clamp_min), op.clamp_max));
}

// The accumulators and activation units of all columns. The sums of a first k tile replace what is
// there, later ones are added; with the last one they leave as output bytes.
class Collector {
 public:
  explicit Collector(const LoopNest& nest)
      : used_columns_(std::min(nest.columns, nest.n)),
        accumulators_(static_cast<size_t>((nest.m + used_columns_ - 1) * used_columns_)),
        channels_(static_cast<size_t>(used_columns_)) {}

  // Takes the sums of `slot` that leave the array in this cycle, one for each column.
  void Take(const LoopNest& nest, const Slot& slot, const uint32_t* bottoms,
            std::span<uint8_t> memory) {
    const int64_t age = slot.age - (nest.rows - 1);
    const int64_t first_n = slot.tile.n_tile * nest.columns;
    const Range leaving = InFirstCycles(age, nest.m, std::min(nest.columns, nest.n - first_n));
    if (leaving.first >= leaving.end) return;
    uint32_t* line = accumulators_.data() + age * used_columns_;
    if (slot.tile.k_tile == 0) {
      std::copy(bottoms + leaving.first, bottoms + leaving.end, line + leaving.first);
    } else {
      for (int64_t c = leaving.first; c < leaving.end; ++c) line[c] += bottoms[c];
    }
    if (slot.tile.k_tile + 1 < nest.k_tiles) return;
    for (int64_t c = leaving.first; c < leaving.end; ++c) {
      const size_t channel = static_cast<size_t>(slot.tile.group * nest.n + first_n + c);
      const int64_t position = age - c;
      ChannelRecord& record = channels_[static_cast<size_t>(c)];
      if (position == 0) {
        record = ReadChannelRecord(memory.subspan(nest.channels + channel * kChannelRecordBytes));
      }
      const size_t element = static_cast<size_t>(position) * nest.instruction.output_c + channel;
      memory[nest.output + element] = Activate(nest.instruction, record, line[c]);
    }
  }

 private:
  int64_t used_columns_;
  // Modulo 2^32. Skewed as the sums are, so that each cycle uses one line: that of position p in
  // column c is at [p + c][c].
  std::vector<uint32_t> accumulators_;
  std::vector<ChannelRecord> channels_;  // of each column
};

// ---- The cells ----

// One row in one cycle: partial sums move down, each cell adding its product. Free of branches and
// aliases: this is the loop that compilers vectorize.
void MultiplyRow(const int16_t* __restrict weights, const int16_t* __restrict activations,
                 const uint32_t* __restrict above, uint32_t* __restrict sums, size_t columns) {
  for (size_t c = 0; c < columns; ++c) {
    sums[c] = above[c] + static_cast<uint32_t>(activations[c] * weights[c]);
  }
}

}  // namespace

SteppedArray::SteppedArray(uint32_t rows, uint32_t columns) : rows_(rows), columns_(columns) {
  ATOLL_CHECK(rows >= 1 && columns >= 1);
  const size_t cells = size_t{rows} * columns;
  active_weights_.resize(cells);
  shadow_weights_.resize(columns_ + cells);
  activations_.resize(2 * cells);
  partial_sums_.resize(columns_ + cells);
}

uint64_t SteppedArray::Conv2D(const Conv2DInstruction& instruction, uint32_t parameter_base,
                              uint32_t activation_base, std::span<uint8_t> memory) {
  const LoopNest nest(instruction, parameter_base, activation_base, *this);
  std::vector<ActivationFeeder> feeders(rows_);
  Collector collector(nest);
  // Oldest first. The first R cycles, in which the first tile's weights enter, belong to the issue.
  std::vector<Slot> slots = {{Tile{}, -nest.rows}};
  Tile next = nest.After(Tile{});
  int64_t cycle = -nest.rows;
  while (!slots.empty()) {
    MoveActivations();
    for (const Slot& slot : slots) {
      DriveWeights(nest, slot, memory, shadow_weights_.data());
      MoveWeights(slot.age);
      const Range fed = InFirstCycles(slot.age, nest.m, nest.rows);
      for (int64_t row = fed.first; row < fed.end; ++row) {
        ActivationFeeder& feeder = feeders[static_cast<size_t>(row)];
        if (row == slot.age) feeder.StartTile(nest, slot.tile, row);
        *Activations(static_cast<size_t>(row)) = feeder.Next(nest, memory);
      }
    }
    Multiply();
    const uint32_t* bottoms = partial_sums_.data() + size_t{rows_} * columns_;
    for (const Slot& slot : slots) collector.Take(nest, slot, bottoms, memory);
    if (observer_ && cycle >= 0) observer_(static_cast<uint64_t>(cycle));

    ++cycle;
    for (Slot& slot : slots) ++slot.age;
    // The next slot's weights come in during the last R cycles of this one.
    if (slots.back().age == nest.slot_cycles - nest.rows && !nest.IsPast(next)) {
      slots.push_back({next, -nest.rows});
      next = nest.After(next);
    }
    // A slot is over when its last cycle has passed the last cell.
    if (slots.front().age == nest.slot_cycles + nest.rows + nest.columns - 2) {
      slots.erase(slots.begin());
    }
  }
  return static_cast<uint64_t>(cycle);
}

// Weights of a slot enter cell (row, column) R cycles before its first activation. For R - row
// cycles the shadow register there takes what is in the one above, which leaves each row with its
// own weight; then it holds, and becomes active as the activation arrives.
void SteppedArray::MoveWeights(int64_t age) {
  const int64_t rows = rows_;
  if (age > rows + columns_ - 2) return;  // the corner cell has its weight
  for (int64_t row = rows; row-- > 0;) {
    int16_t* shadow = shadow_weights_.data() + (row + 1) * columns_;
    const int64_t arriving = age - row;
    if (arriving >= 0 && arriving < columns_) {
      active_weights_[static_cast<size_t>(row * columns_ + arriving)] = shadow[arriving];
    }
    const Range moving = InFirstCycles(arriving + rows, rows - row, columns_);
    if (moving.first >= moving.end) continue;
    const int16_t* above = shadow - columns_;
    std::copy(above + moving.first, above + moving.end, shadow + moving.first);
  }
}

// Activations move one column to the right. The registers of a row are a window that slides over a
// line of twice their number, so that they need not be copied in each cycle.
void SteppedArray::MoveActivations() {
  if (window_ > 0) {
    --window_;
  } else {
    window_ = columns_;
    for (uint32_t row = 0; row < rows_; ++row) {
      const int16_t* line = activations_.data() + size_t{row} * 2 * columns_;
      std::copy_n(line, columns_ - 1, Activations(row) + 1);
    }
  }
  for (uint32_t row = 0; row < rows_; ++row) *Activations(row) = 0;
}

void SteppedArray::Multiply() {
  // From the bottom up, so that each row reads what the row above held before this cycle.
  for (uint32_t row = rows_; row-- > 0;) {
    uint32_t* above = partial_sums_.data() + size_t{row} * columns_;
    MultiplyRow(active_weights_.data() + size_t{row} * columns_, Activations(row), above,
                above + columns_, columns_);
  }
}

int32_t SteppedArray::ActiveWeight(uint32_t row, uint32_t column) const {
  return active_weights_[size_t{row} * columns_ + column];
}

int32_t SteppedArray::ShadowWeight(uint32_t row, uint32_t column) const {
  return shadow_weights_[(size_t{row} + 1) * columns_ + column];
}

int32_t SteppedArray::Activation(uint32_t row, uint32_t column) const {
  return activations_[size_t{row} * 2 * columns_ + window_ + column];
}

int32_t SteppedArray::PartialSum(uint32_t row, uint32_t column) const {
  return static_cast<int32_t>(partial_sums_[(size_t{row} + 1) * columns_ + column]);
}

}  // namespace atollrt
