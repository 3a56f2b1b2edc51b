// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/stepped_array.h"

#include <algorithm>

#include "atoll/check.h"
#include "driver/emulator/stepped_jobs.h"

namespace atollrt {

using stepped::InFirstCycles;
using stepped::Range;
using stepped::Slot;

namespace {

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

uint64_t SteppedArray::Run(const Instruction& instruction, const Segments& segments,
                           std::span<uint8_t> memory) {
  if (const auto* conv = std::get_if<Conv2DInstruction>(&instruction)) {
    return RunJob(stepped::Conv2DJob(*conv, segments, rows_, columns_), memory);
  }
  if (const auto* transposed = std::get_if<TransposeConv2DInstruction>(&instruction)) {
    return RunJob(stepped::TransposeConv2DJob(*transposed, segments, rows_, columns_), memory);
  }
  const auto* lstm = std::get_if<LstmInstruction>(&instruction);
  ATOLL_CHECK(lstm != nullptr);
  return RunJob(stepped::LstmJob(*lstm, segments, rows_, columns_), memory);
}

template <typename Job>
uint64_t SteppedArray::RunJob(Job job, std::span<uint8_t> memory) {
  using Tile = typename Job::Tile;
  const int64_t rows = rows_;
  std::vector<typename Job::Feeder> feeders(rows_);
  std::vector<Slot<Tile>> slots;  // oldest first
  Tile next{};
  int64_t next_start = 0;  // of that tile's slot
  // The first R cycles, in which the first tile's weights enter, belong to the issue.
  for (int64_t cycle = -rows;; ++cycle) {
    // A slot's weights come in during the R cycles before it.
    if (!job.IsPast(next) && cycle == next_start - rows) {
      slots.push_back({next, -rows});
      next_start += job.SlotCycles(next);
      next = job.After(next);
    }
    if (slots.empty() || stop_()) return cycle;
    MoveActivations();
    for (const Slot<Tile>& slot : slots) {
      if (job.HasWeights(slot.tile)) {
        DriveWeights(job, slot, memory);
        MoveWeights(slot.age);
      }
      const Range fed = InFirstCycles(slot.age, job.Positions(slot.tile), rows);
      for (int64_t row = fed.first; row < fed.end; ++row) {
        auto& feeder = feeders[row];
        if (row == slot.age) feeder.StartTile(job, slot.tile, row);
        *Activations(row) = feeder.Next(job, memory);
      }
    }
    Multiply();
    const uint32_t* sums = partial_sums_.data() + size_t{rows_} * columns_;
    for (const Slot<Tile>& slot : slots) job.Take(slot.tile, slot.age - (rows - 1), sums, memory);
    if (observer_ && cycle >= 0) observer_(cycle);

    for (Slot<Tile>& slot : slots) ++slot.age;
    // A slot is over when its last cycle has passed the last cell.
    const Tile& oldest = slots.front().tile;
    const int64_t skew = job.IsSkewed(oldest) ? rows + columns_ - 2 : 0;
    if (slots.front().age == job.SlotCycles(oldest) + skew) slots.erase(slots.begin());
  }
}

// Drives the tops of the columns in which weights of `slot` enter in this cycle. The weight of the
// last row comes first.
template <typename Job, typename Slot>
void SteppedArray::DriveWeights(const Job& job, const Slot& slot, std::span<const uint8_t> memory) {
  const int64_t rows = rows_;
  const Range entering = InFirstCycles(slot.age + rows, rows, columns_);
  for (int64_t column = entering.first; column < entering.end; ++column) {
    const int64_t row = rows - 1 - (slot.age + rows - column);
    shadow_weights_[column] = job.Weight(slot.tile, row, column, memory);
  }
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
      active_weights_[row * columns_ + arriving] = shadow[arriving];
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
