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
// Part of stepped_array.cc, and like it written from the page alone. Sizes are kept in 64 bits
// everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "atoll/check.h"
#include "driver/emulator/isa_arithmetic.h"
#include "driver/emulator/stepped_functions.h"
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

// What becomes of the finished sums of filters: the activation unit of each column makes bytes of
// them, with the record of the channel that it works on.
template <typename T>
class ActivationUnits {
 public:
  ActivationUnits(const T& op, const Places& places, int64_t columns)
      : op_(op), at_(places), records_(columns) {}

  // Positions of a channel follow each other, from 0.
  void Activate(int64_t column, int64_t channel, int64_t position, uint32_t sum,
                std::span<uint8_t> memory) {
    isa::ChannelRecord& record = records_[column];
    if (position == 0) {
      record = isa::ReadChannelRecord(memory.subspan(at_.channels + channel * kChannelRecordBytes));
    }
    memory[at_.output + position * op_.output_c + channel] = isa::Activate(op_, record, sum);
  }

 private:
  const T& op_;
  Places at_;
  std::vector<isa::ChannelRecord> records_;  // of each column
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

  Conv2DJob(const Conv2DInstruction& op, const Segments& segments, int64_t rows, int64_t columns)
      : op_(op),
        at_(op, segments),
        rows_(rows),
        columns_(columns),
        group_c_(op.input_c / op.groups),
        m_(int64_t{op.batch} * op.output_h * op.output_w),
        k_(int64_t{op.kernel_h} * op.kernel_w * group_c_),
        n_(op.output_c / op.groups),
        k_tiles_(CeilDivide(k_, rows_)),
        n_tiles_(CeilDivide(n_, columns_)),
        used_columns_(std::min(columns_, n_)),
        accumulators_((m_ + used_columns_ - 1) * used_columns_),
        units_(op, at_, used_columns_) {}

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
    return Operand(memory[at_.weights + channel * k_ + k], (op_.flags & kFlagWeightsUnsigned) != 0,
                   op_.weight_zero_point);
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
        activation = Operand(memory[line_ + input_x_ * op.input_c],
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
        line_ = job.at_.input + channel_ +
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
      units_.Activate(c, tile.group * n_ + first_n + c, age - c, line[c], memory);
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
  ActivationUnits<Conv2DInstruction> units_;
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

  TransposeConv2DJob(const TransposeConv2DInstruction& op, const Segments& segments, int64_t rows,
                     int64_t columns)
      : op_(op),
        at_(op, segments),
        rows_(rows),
        columns_(columns),
        m_(int64_t{op.batch} * op.input_h * op.input_w),
        outputs_(int64_t{op.batch} * op.output_h * op.output_w),
        taps_(op.kernel_h * op.kernel_w),
        k_tiles_(CeilDivide(op.input_c, rows_)),
        n_tiles_(CeilDivide(op.output_c, columns_)),
        used_columns_(std::min<int64_t>(columns_, op.output_c)),
        accumulators_(outputs_ * used_columns_),
        units_(op, at_, used_columns_) {}

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
    return Operand(memory[at_.weights + index], (op_.flags & kFlagWeightsUnsigned) != 0,
                   op_.weight_zero_point);
  }

  // Feeds one row: input channel k_tile * R + row of all input positions in turn.
  class Feeder {
   public:
    void StartTile(const TransposeConv2DJob& job, const Tile& tile, int64_t row) {
      const int64_t k = tile.k_tile * job.rows_ + row;
      in_product_ = k < job.op_.input_c;
      next_ = job.at_.input + k;
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
      if (output >= 0) accumulators_[output * used_columns_ + c] += sums[c];
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
      uint32_t& accumulator = accumulators_[(age - c) * used_columns_ + c];
      units_.Activate(c, first_n + c, age - c, accumulator, memory);
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
  std::vector<uint32_t> accumulators_;  // [outputs_, used_columns_], modulo 2^32
  ActivationUnits<TransposeConv2DInstruction> units_;
};

// ---- LSTM ----
//
// docs/isa.md §5, "How the array runs an LSTM". Between its steps, while nothing enters the array,
// the lanes of the vector unit (LstmLanes) make the new state.

inline constexpr int64_t kLstmGates = 4;

// The number of the step's row of values in the input and output tensors.
inline int64_t LstmPosition(const LstmInstruction& op, int64_t sequence, int64_t step) {
  return op.time_major != 0 ? step * op.batch + sequence : sequence * op.steps + step;
}

// Gates of all sequences and units, [batch, 4, units]: what goes into their functions and, in the
// same place, what comes out.
class GateValues {
 public:
  GateValues(int64_t batch, int64_t units) : units_(units), values_(batch * kLstmGates * units) {}

  // `channel` is gate * units + unit.
  int16_t& At(int64_t sequence, int64_t channel) {
    return values_[sequence * kLstmGates * units_ + channel];
  }
  int16_t& At(int64_t sequence, int64_t gate, int64_t unit) {
    return At(sequence, gate * units_ + unit);
  }

 private:
  int64_t units_;
  std::vector<int16_t> values_;
};

// The vector unit between two steps. A lane has one unit of one sequence at a time; a group is as
// many neighbouring units of a sequence as there are lanes.
class LstmLanes {
 public:
  LstmLanes(const LstmInstruction& op, const Segments& segments, int64_t lanes)
      : op_(op),
        hidden_(segments.Resolve(op.hidden_address)),
        cell_(segments.Resolve(op.cell_address)),
        output_(segments.Resolve(op.output_address)),
        lanes_(lanes),
        groups_of_sequence_(CeilDivide(op.units, lanes)),
        groups_(op.batch * groups_of_sequence_),
        kept_(lanes) {}

  // What the array waits in each step.
  int64_t Cycles() const { return (kLstmGates + 3 + 1) * groups_ + 2 * kDelay; }

  // Cycle number `cycle` of those.
  void Step(int64_t step, int64_t cycle, GateValues& gates, std::span<uint8_t> memory) {
    if (cycle < kLstmGates * groups_) {
      StartGate(cycle / kLstmGates, cycle % kLstmGates, gates);
    } else if (cycle -= kLstmGates * groups_ + kDelay; cycle >= 0 && cycle < 3 * groups_) {
      MakeCell(cycle / 3, cycle % 3, gates, memory);
    } else if (cycle -= 3 * groups_ + kDelay; cycle >= 0) {
      MakeHidden(step, cycle, gates, memory);
    }
    MoveFunctions();
  }

 private:
  // Gates and what becomes of them.
  enum Gate : int64_t { kInput, kForget, kUpdate, kOutputGate };

  // After the cycle in which a function begins, until its result is there.
  static constexpr int64_t kDelay = GateFunction::kStages - 1;

  // Functions that began in the same cycle, with the places of their results.
  struct Wave {
    std::vector<GateFunction> functions;
    std::vector<int16_t*> results;
  };

  // function(lane, sequence, unit) for the lanes that a group occupies.
  template <typename Function>
  void ForLanes(int64_t group, const Function& function) {
    const int64_t sequence = group / groups_of_sequence_;
    const int64_t first = group % groups_of_sequence_ * lanes_;
    const int64_t count = std::min(lanes_, op_.units - first);
    for (int64_t lane = 0; lane < count; ++lane) {
      function(lane, sequence, first + lane);
    }
  }

  void StartGate(int64_t group, int64_t gate, GateValues& gates) {
    constexpr int64_t kUpdateIntegerBits = 3;
    Wave& wave = flying_.emplace_back();
    ForLanes(group, [&](size_t, int64_t sequence, int64_t unit) {
      int16_t& value = gates.At(sequence, gate, unit);
      const auto kind = gate == kUpdate ? GateFunction::Kind::kTanh : GateFunction::Kind::kLogistic;
      wave.functions.emplace_back(kind, value, kUpdateIntegerBits);
      wave.results.push_back(&value);
    });
  }

  // Two products and the start of a function, whose result takes the place of the update gate.
  void MakeCell(int64_t group, int64_t part, GateValues& gates, std::span<uint8_t> memory) {
    if (group == 0 && part == 0) ATOLL_CHECK(flying_.empty());
    if (part == 2) flying_.emplace_back();
    ForLanes(group, [&](size_t lane, int64_t sequence, int64_t unit) {
      const size_t cell = cell_ + 2 * (sequence * op_.units + unit);
      const int64_t c = isa::Value(memory[cell + 1], false) * 256 + memory[cell];
      if (part == 0) {
        kept_[lane] = isa::Rdpot(gates.At(sequence, kForget, unit) * c, 15);
      } else if (part == 1) {
        const int64_t added =
            int64_t{gates.At(sequence, kInput, unit)} * gates.At(sequence, kUpdate, unit);
        int64_t next = isa::Sat16(kept_[lane] + isa::Rdpot(added, 15 + op_.cell_integer_bits));
        const int64_t clip = op_.cell_clip;
        if (clip > 0) next = isa::Between(next, -clip, clip);
        memory[cell] = static_cast<uint8_t>(next);
        memory[cell + 1] = static_cast<uint8_t>(next >> 8);
      } else {
        flying_.back().functions.emplace_back(GateFunction::Kind::kTanh, c, op_.cell_integer_bits);
        flying_.back().results.push_back(&gates.At(sequence, kUpdate, unit));
      }
    });
  }

  void MakeHidden(int64_t step, int64_t group, GateValues& gates, std::span<uint8_t> memory) {
    ATOLL_CHECK(flying_.empty());
    ForLanes(group, [&](size_t, int64_t sequence, int64_t unit) {
      const int64_t product =
          int64_t{gates.At(sequence, kOutputGate, unit)} * gates.At(sequence, kUpdate, unit);
      const int64_t t = isa::Mbqm(product, op_.hidden_multiplier, op_.hidden_exponent);
      const uint8_t h = isa::Clamped(t + op_.hidden_zero_point, -128, 127);
      const int64_t position = LstmPosition(op_, sequence, step);
      memory[hidden_ + sequence * op_.units + unit] = h;
      memory[output_ + position * op_.units + unit] = h;
    });
  }

  // Each function in the pipelines advances by a stage.
  void MoveFunctions() {
    for (Wave& wave : flying_) {
      for (size_t k = 0; k < wave.functions.size(); ++k) {
        if (!wave.functions[k].Step()) continue;
        *wave.results[k] = static_cast<int16_t>(wave.functions[k].result());
        is_landing_ = true;
      }
    }
    if (is_landing_) flying_.pop_front();
    is_landing_ = false;
  }

  const LstmInstruction& op_;
  size_t hidden_, cell_, output_;  // offsets in memory
  int64_t lanes_;
  int64_t groups_of_sequence_, groups_;
  std::vector<int64_t> kept_;  // of each lane, from one cycle to the next
  std::deque<Wave> flying_;    // oldest first
  bool is_landing_ = false;
};

class LstmJob {
 public:
  // R products by C channels of one step and one of its two products; product number 2 stands for
  // the new state.
  struct Tile {
    uint32_t step = 0;
    uint32_t product = 0;
    int64_t n_tile = 0;
    int64_t k_tile = 0;
  };

  LstmJob(const LstmInstruction& op, const Segments& segments, int64_t rows, int64_t columns)
      : op_(op),
        input_(segments.Resolve(op.input_address)),
        weights_(segments.Resolve(op.weight_address)),
        channels_(segments.Resolve(op.channel_address)),
        hidden_(segments.Resolve(op.hidden_address)),
        rows_(rows),
        columns_(columns),
        n_(kLstmGates * op.units),
        k_{op.inputs, op.units},
        accumulators_(op.batch * columns),
        records_(columns),
        gates_(op.batch, op.units),
        lanes_(op, segments, columns) {}

  bool IsPast(const Tile& tile) const { return tile.step == op_.steps; }
  Tile After(Tile tile) const {
    if (HasWeights(tile)) {
      if (++tile.k_tile < CeilDivide(k_[tile.product], rows_)) return tile;
      tile.k_tile = 0;
      if (++tile.n_tile < CeilDivide(n_, columns_)) return tile;
      tile.n_tile = 0;
      ++tile.product;
      return tile;
    }
    return {.step = tile.step + 1};
  }
  bool HasWeights(const Tile& tile) const { return tile.product < k_.size(); }
  // The lanes begin when the last sum has left.
  bool IsSkewed(const Tile& tile) const { return HasWeights(tile); }
  int64_t Positions(const Tile& tile) const { return HasWeights(tile) ? op_.batch : 0; }
  int64_t SlotCycles(const Tile& tile) const {
    return HasWeights(tile) ? std::max<int64_t>(op_.batch, rows_) : Skew() + lanes_.Cycles();
  }

  int16_t Weight(const Tile& tile, int64_t row, int64_t column,
                 std::span<const uint8_t> memory) const {
    const int64_t products = k_[tile.product];
    const int64_t k = tile.k_tile * rows_ + row;
    const int64_t n = tile.n_tile * columns_ + column;
    if (k >= products || n >= n_) return 0;
    const int64_t index = (tile.product == 0 ? 0 : n_ * k_[0]) + n * products + k;
    return Operand(memory[weights_ + index], false, 0);
  }

  // Feeds one row: element k_tile * R + row of each sequence's input, or hidden value, in turn.
  class Feeder {
   public:
    void StartTile(const LstmJob& job, const Tile& tile, int64_t row) {
      tile_ = tile;
      k_ = tile.k_tile * job.rows_ + row;
      sequence_ = 0;
    }
    int16_t Next(const LstmJob& job, std::span<const uint8_t> memory) {
      const int64_t sequence = sequence_++;
      const int64_t products = job.k_[tile_.product];
      if (k_ >= products) return 0;
      const int64_t position =
          tile_.product == 0 ? LstmPosition(job.op_, sequence, tile_.step) : sequence;
      const size_t first = tile_.product == 0 ? job.input_ : job.hidden_;
      return Operand(memory[first + position * products + k_], false, 0);
    }

   private:
    Tile tile_;
    int64_t k_ = 0;
    int64_t sequence_ = 0;
  };

  // Sums gather in accumulators as for CONV_2D and leave as 16 bits, those of the second product
  // added to those of the first.
  void Take(const Tile& tile, int64_t age, const uint32_t* sums, std::span<uint8_t> memory) {
    if (!HasWeights(tile)) {
      const int64_t cycle = age + rows_ - 1 - Skew();
      if (cycle >= 0 && cycle < lanes_.Cycles()) lanes_.Step(tile.step, cycle, gates_, memory);
      return;
    }
    const int64_t first_n = tile.n_tile * columns_;
    const Range leaving = InFirstCycles(age, op_.batch, std::min(columns_, n_ - first_n));
    for (int64_t c = leaving.first; c < leaving.end; ++c) {
      const int64_t sequence = age - c;
      const int64_t channel = first_n + c;
      uint32_t& accumulator = accumulators_[sequence * columns_ + c];
      accumulator = tile.k_tile == 0 ? sums[c] : accumulator + sums[c];
      if (tile.k_tile + 1 < CeilDivide(k_[tile.product], rows_)) continue;
      isa::ChannelRecord& record = records_[c];
      if (sequence == 0) {
        const int64_t index = tile.product * n_ + channel;
        record = isa::ReadChannelRecord(memory.subspan(channels_ + index * kChannelRecordBytes));
      }
      const int64_t scaled =
          isa::Mbqm(isa::Wrap(accumulator + record.bias), record.multiplier, record.exponent);
      int16_t& gate = gates_.At(sequence, channel);
      gate = static_cast<int16_t>(isa::Sat16(tile.product == 0 ? scaled : gate + scaled));
    }
  }

 private:
  int64_t Skew() const { return rows_ + columns_ - 2; }

  const LstmInstruction& op_;
  size_t input_, weights_, channels_, hidden_;  // offsets in memory
  int64_t rows_, columns_;
  int64_t n_;                                // channels of a product
  std::array<int64_t, 2> k_;                 // products of each
  std::vector<uint32_t> accumulators_;       // [batch, columns], modulo 2^32
  std::vector<isa::ChannelRecord> records_;  // of each column
  GateValues gates_;
  LstmLanes lanes_;
};

}  // namespace atollrt::stepped
