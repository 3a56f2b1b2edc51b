// SPDX-License-Identifier: Apache-2.0
//
// What the stepped units compute for an LSTM: docs/isa.md §5, "How the array runs an LSTM". LstmJob
// is a job of the array, with the same members as those of stepped_jobs.h. Between its steps, while
// nothing enters the array, the lanes of the vector unit (LstmLanes) make the new state.
//
// Part of stepped_array.cc.
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
#include "driver/emulator/stepped_jobs.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"

namespace atollrt::stepped {

inline constexpr int64_t kLstmGates = 4;

// Number of the step's row of values in the input and output tensors.
inline int64_t LstmPosition(const LstmInstruction& op, int64_t sequence, int64_t step) {
  return op.time_major != 0 ? step * op.batch + sequence : sequence * op.steps + step;
}

// Gates of all sequences and units, [batch, 4, units]: what goes into their functions and, in the
// same place, what comes out.
class GateValues {
 public:
  GateValues(int64_t batch, int64_t units)
      : units_(units), values_(static_cast<size_t>(batch * kLstmGates * units)) {}

  // `channel` is gate * units + unit.
  int16_t& At(int64_t sequence, int64_t channel) {
    return values_[static_cast<size_t>(sequence * kLstmGates * units_ + channel)];
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
        kept_(static_cast<size_t>(lanes)) {}

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
      function(static_cast<size_t>(lane), sequence, first + lane);
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
      const size_t cell = cell_ + 2 * static_cast<size_t>(sequence * op_.units + unit);
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
      memory[hidden_ + static_cast<size_t>(sequence * op_.units + unit)] = h;
      memory[output_ + static_cast<size_t>(position * op_.units + unit)] = h;
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
        accumulators_(static_cast<size_t>(op.batch * columns)),
        records_(static_cast<size_t>(columns)),
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
    return Operand(memory[weights_ + static_cast<size_t>(index)], false, 0);
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
      return Operand(memory[first + static_cast<size_t>(position * products + k_)], false, 0);
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
      uint32_t& accumulator = accumulators_[static_cast<size_t>(sequence * columns_ + c)];
      accumulator = tile.k_tile == 0 ? sums[c] : accumulator + sums[c];
      if (tile.k_tile + 1 < CeilDivide(k_[tile.product], rows_)) continue;
      isa::ChannelRecord& record = records_[static_cast<size_t>(c)];
      if (sequence == 0) {
        const int64_t index = tile.product * n_ + channel;
        record = isa::ReadChannelRecord(
            memory.subspan(channels_ + static_cast<size_t>(index) * kChannelRecordBytes));
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
