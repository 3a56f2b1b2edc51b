// SPDX-License-Identifier: Apache-2.0
//
// What the stepped array computes: the instructions of docs/isa.md §5, "How the array computes" and
// "How the array scatters", as jobs. A job is a sequence of slots, with what enters the array at
// its edges and what becomes of the sums:
//
//   Tile                        names a slot; Tile() is the first
//   After(tile), IsPast(tile)   the sequence
//   HasWeights(tile), Positions(tile), SlotCycles(tile)
//   IsSkewed(tile)              whether its last cycle must pass the last cell
//   Weight(tile, row, column, memory)
//   Feeder                      the activations of one row: StartTile, then Next per position
//   Take(tile, age, sums, memory)
//                               the sums that leave the columns; `age` is that of cell (0, 0)
//
// LSTM is in stepped_lstm.h. Part of stepped_array.cc, and like it written from the page alone.
// Sizes are kept in 64 bits everywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "driver/emulator/isa_arithmetic.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"

namespace atollrt::stepped {

// A byte as a 9-bit operand of the array: its value less the zero point.
inline int16_t Operand(uint8_t byte, bool is_unsigned, int32_t zero_point) {
  return static_cast<int16_t>(isa::Value(byte, is_unsigned) - zero_point);
}

// ---- Slots ----

// Indices first ... end - 1, empty if end <= first.
struct Range {
  int64_t first;
  int64_t end;
};

// The edges are skewed: row or column i is i cycles behind. Of `count` of them, those which are now
// in the first `length` cycles of what index 0 began `age` cycles ago.
inline Range InFirstCycles(int64_t age, int64_t length, int64_t count) {
  return {std::max<int64_t>(age - (length - 1), 0), std::min(age + 1, count)};
}

inline int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A tile on its way through the array. In cycle `age` of its slot, cell (0, 0) multiplies position
// `age`; cell (row, column) is row + column cycles behind. Negative while the weights come in.
template <typename Tile>
struct Slot {
  Tile tile;
  int64_t age = 0;
};

// Offsets in memory of the tensors of an instruction.
struct Places {
  template <typename T>
  Places(const T& op, const Segments& segments)
      : input(segments.Resolve(op.input_address)),
        weights(segments.Resolve(op.weight_address)),
        channels(segments.Resolve(op.channel_address)),
        output(segments.Resolve(op.output_address)) {}

  size_t input, weights, channels, output;
};

// ---- CONV_2D ----

class Conv2DJob {
 public:
  // R products by C output channels.
  struct Tile {
    uint32_t group = 0;
    uint32_t n_tile = 0;
    uint32_t k_tile = 0;
  };

  Conv2DJob(const Conv2DInstruction& op, const Places& places, int64_t rows, int64_t columns)
      : op_(op),
        at_(places),
        rows_(rows),
        columns_(columns),
        group_c_(op.input_c / op.groups),
        m_(int64_t{op.batch} * op.output_h * op.output_w),
        k_(int64_t{op.kernel_h} * op.kernel_w * group_c_),
        n_(op.output_c / op.groups),
        k_tiles_(CeilDivide(k_, rows_)),
        n_tiles_(CeilDivide(n_, columns_)),
        used_columns_(std::min(columns_, n_)),
        accumulators_(static_cast<size_t>((m_ + used_columns_ - 1) * used_columns_)),
        channels_(static_cast<size_t>(used_columns_)) {}

  bool IsPast(const Tile& tile) const { return tile.group == op_.groups; }
  Tile After(Tile tile) const {
    if (++tile.k_tile < k_tiles_) return tile;
    tile.k_tile = 0;
    if (++tile.n_tile < n_tiles_) return tile;
    tile.n_tile = 0;
    ++tile.group;
    return tile;
  }
  bool HasWeights(const Tile&) const { return true; }
  bool IsSkewed(const Tile&) const { return true; }
  int64_t Positions(const Tile&) const { return m_; }
  // From one tile to the next: its positions pass, the next weights arrive.
  int64_t SlotCycles(const Tile&) const { return std::max(m_, rows_); }

  int16_t Weight(const Tile& tile, int64_t row, int64_t column,
                 std::span<const uint8_t> memory) const {
    const int64_t k = tile.k_tile * rows_ + row;
    const int64_t n = tile.n_tile * columns_ + column;
    if (k >= k_ || n >= n_) return 0;
    const int64_t channel = tile.group * n_ + n;
    return Operand(memory[at_.weights + static_cast<size_t>(channel * k_ + k)],
                   (op_.flags & kFlagWeightsUnsigned) != 0, op_.weight_zero_point);
  }

  // Feeds one row: of each output position the input element that product index k_tile * R + row
  // needs. Generates the addresses of the implicit im2col by counting.
  class Feeder {
   public:
    void StartTile(const Conv2DJob& job, const Tile& tile, int64_t row) {
      const Conv2DInstruction& op = job.op_;
      const int64_t k = tile.k_tile * job.rows_ + row;
      in_product_ = k < job.k_;
      if (!in_product_) return;
      const int64_t tap = k / job.group_c_;
      tap_y_ = tap / op.kernel_w * op.dilation_h - op.pad_top;
      tap_x_ = tap % op.kernel_w * op.dilation_w - op.pad_left;
      channel_ = tile.group * job.group_c_ + k % job.group_c_;
      image_ = y_ = 0;
      StartLine(job);
    }

    // The operand of the next position; positions outside the image and rows beyond K feed zeros.
    int16_t Next(const Conv2DJob& job, std::span<const uint8_t> memory) {
      if (!in_product_) return 0;
      const Conv2DInstruction& op = job.op_;
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
        StartLine(job);
      }
      return activation;
    }

   private:
    void StartLine(const Conv2DJob& job) {
      const Conv2DInstruction& op = job.op_;
      const int64_t input_y = int64_t{y_} * op.stride_h + tap_y_;
      line_inside_ = input_y >= 0 && input_y < int64_t{op.input_h};
      if (line_inside_) {
        line_ = static_cast<int64_t>(job.at_.input) + channel_ +
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

  // The sums of a first k tile replace what is in the accumulators, later ones are added; with the
  // last one they leave as output bytes.
  void Take(const Tile& tile, int64_t age, const uint32_t* sums, std::span<uint8_t> memory) {
    const int64_t first_n = tile.n_tile * columns_;
    const Range leaving = InFirstCycles(age, m_, std::min(columns_, n_ - first_n));
    if (leaving.first >= leaving.end) return;
    uint32_t* line = accumulators_.data() + age * used_columns_;
    if (tile.k_tile == 0) {
      std::copy(sums + leaving.first, sums + leaving.end, line + leaving.first);
    } else {
      for (int64_t c = leaving.first; c < leaving.end; ++c) line[c] += sums[c];
    }
    if (tile.k_tile + 1 < k_tiles_) return;
    for (int64_t c = leaving.first; c < leaving.end; ++c) {
      const size_t channel = static_cast<size_t>(tile.group * n_ + first_n + c);
      const int64_t position = age - c;
      isa::ChannelRecord& record = channels_[static_cast<size_t>(c)];
      if (position == 0) {
        record =
            isa::ReadChannelRecord(memory.subspan(at_.channels + channel * kChannelRecordBytes));
      }
      const size_t element = static_cast<size_t>(position) * op_.output_c + channel;
      memory[at_.output + element] = isa::Activate(op_, record, line[c]);
    }
  }

 private:
  const Conv2DInstruction& op_;
  Places at_;
  int64_t rows_, columns_;
  int64_t group_c_;    // input channels of a group
  int64_t m_, k_, n_;  // of each group's matrix product
  int64_t k_tiles_, n_tiles_;
  int64_t used_columns_;
  // Modulo 2^32. Skewed as the sums are, so that each cycle uses one line: that of position p in
  // column c is at [p + c][c].
  std::vector<uint32_t> accumulators_;
  std::vector<isa::ChannelRecord> channels_;  // of each column
};

// ---- TRANSPOSE_CONV_2D ----

class TransposeConv2DJob {
 public:
  // R input channels by C output channels of one tap of the filter. Tap number kernel_h * kernel_w
  // is the drain, in which nothing enters and the accumulators leave.
  struct Tile {
    uint32_t n_tile = 0;
    uint32_t tap = 0;
    uint32_t k_tile = 0;
  };

  TransposeConv2DJob(const TransposeConv2DInstruction& op, const Places& places, int64_t rows,
                     int64_t columns)
      : op_(op),
        at_(places),
        rows_(rows),
        columns_(columns),
        m_(int64_t{op.batch} * op.input_h * op.input_w),
        outputs_(int64_t{op.batch} * op.output_h * op.output_w),
        taps_(op.kernel_h * op.kernel_w),
        k_tiles_(CeilDivide(op.input_c, rows_)),
        n_tiles_(CeilDivide(op.output_c, columns_)),
        used_columns_(std::min<int64_t>(columns_, op.output_c)),
        accumulators_(static_cast<size_t>(outputs_ * used_columns_)),
        channels_(static_cast<size_t>(used_columns_)) {}

  bool IsPast(const Tile& tile) const { return tile.n_tile == n_tiles_; }
  Tile After(Tile tile) const {
    if (HasWeights(tile) && ++tile.k_tile < k_tiles_) return tile;
    tile.k_tile = 0;
    if (++tile.tap <= taps_) return tile;
    tile.tap = 0;
    ++tile.n_tile;
    return tile;
  }
  bool HasWeights(const Tile& tile) const { return tile.tap < taps_; }
  bool IsSkewed(const Tile&) const { return true; }
  int64_t Positions(const Tile& tile) const { return HasWeights(tile) ? m_ : 0; }
  int64_t SlotCycles(const Tile& tile) const {
    return HasWeights(tile) ? std::max(m_, rows_) : outputs_;
  }

  int16_t Weight(const Tile& tile, int64_t row, int64_t column,
                 std::span<const uint8_t> memory) const {
    const int64_t k = tile.k_tile * rows_ + row;
    const int64_t n = tile.n_tile * columns_ + column;
    if (k >= op_.input_c || n >= op_.output_c) return 0;
    const int64_t index = (n * taps_ + tile.tap) * op_.input_c + k;
    return Operand(memory[at_.weights + static_cast<size_t>(index)],
                   (op_.flags & kFlagWeightsUnsigned) != 0, op_.weight_zero_point);
  }

  // Feeds one row: input channel k_tile * R + row of all input positions in turn.
  class Feeder {
   public:
    void StartTile(const TransposeConv2DJob& job, const Tile& tile, int64_t row) {
      const int64_t k = tile.k_tile * job.rows_ + row;
      in_product_ = k < job.op_.input_c;
      next_ = job.at_.input + static_cast<size_t>(k);
    }
    int16_t Next(const TransposeConv2DJob& job, std::span<const uint8_t> memory) {
      if (!in_product_) return 0;
      const TransposeConv2DInstruction& op = job.op_;
      const uint8_t byte = memory[next_];
      next_ += op.input_c;
      return Operand(byte, (op.flags & kFlagInputUnsigned) != 0, op.input_zero_point);
    }

   private:
    size_t next_ = 0;
    bool in_product_ = false;
  };

  // A sum is added to the accumulator of the output position to which its tap moves its input
  // position, if there is one. The drain empties the accumulators.
  void Take(const Tile& tile, int64_t age, const uint32_t* sums, std::span<uint8_t> memory) {
    const int64_t first_n = tile.n_tile * columns_;
    const int64_t columns = std::min(columns_, op_.output_c - first_n);
    if (!HasWeights(tile)) {
      Drain(InFirstCycles(age, outputs_, columns), age, first_n, memory);
      return;
    }
    const Range leaving = InFirstCycles(age, m_, columns);
    for (int64_t c = leaving.first; c < leaving.end; ++c) {
      const int64_t output = OutputPosition(tile.tap, age - c);
      if (output >= 0) accumulators_[static_cast<size_t>(output * used_columns_ + c)] += sums[c];
    }
  }

 private:
  // -1: outside.
  int64_t OutputPosition(int64_t tap, int64_t input_position) const {
    const int64_t line = input_position / op_.input_w;
    const int64_t y = line % op_.input_h * op_.stride_h - op_.pad_top + tap / op_.kernel_w;
    const int64_t x =
        input_position % op_.input_w * op_.stride_w - op_.pad_left + tap % op_.kernel_w;
    if (y < 0 || y >= op_.output_h || x < 0 || x >= op_.output_w) return -1;
    return (line / op_.input_h * op_.output_h + y) * op_.output_w + x;
  }

  void Drain(Range leaving, int64_t age, int64_t first_n, std::span<uint8_t> memory) {
    for (int64_t c = leaving.first; c < leaving.end; ++c) {
      const size_t channel = static_cast<size_t>(first_n + c);
      const int64_t position = age - c;
      isa::ChannelRecord& record = channels_[static_cast<size_t>(c)];
      if (position == 0) {
        record =
            isa::ReadChannelRecord(memory.subspan(at_.channels + channel * kChannelRecordBytes));
      }
      uint32_t& accumulator = accumulators_[static_cast<size_t>(position * used_columns_ + c)];
      const size_t element = static_cast<size_t>(position) * op_.output_c + channel;
      memory[at_.output + element] = isa::Activate(op_, record, accumulator);
      accumulator = 0;
    }
  }

  const TransposeConv2DInstruction& op_;
  Places at_;
  int64_t rows_, columns_;
  int64_t m_;        // input positions
  int64_t outputs_;  // output positions
  uint32_t taps_;
  int64_t k_tiles_, n_tiles_;
  int64_t used_columns_;
  std::vector<uint32_t> accumulators_;        // [outputs_, used_columns_], modulo 2^32
  std::vector<isa::ChannelRecord> channels_;  // of each column
};

}  // namespace atollrt::stepped
