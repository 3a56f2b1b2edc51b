// SPDX-License-Identifier: Apache-2.0
//
// The stepped face of the emulator's matrix unit: the array of docs/isa.md §5, "How the array
// computes", with every register of every cell updated in every cycle. It is the oracle for the
// bytes and the cycles of CONV_2D, TRANSPOSE_CONV_2D and LSTM, on small shapes, so it is written
// from that page alone and shares no arithmetic with the kernels. It knows no closed form: cycles
// are counted as they pass.
//
// A SteppedArray belongs to one thread at a time. Its registers keep what the previous
// instruction left in them, as a machine's would; no result depends on it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "driver/emulator/stop_signal.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"

namespace atollrt {

class SteppedArray {
 public:
  // rows x columns cells, both at least 1: R and C of docs/isa.md.
  SteppedArray(uint32_t rows, uint32_t columns);

  // Runs one instruction of the array on `memory`, the on-chip memory, and returns the cycles that
  // it took, issue not included. Precondition: the instruction passes the checks of docs/isa.md §4
  // with these segments and this memory. Writes the output tensor, an LSTM its state, too, and
  // nothing else.
  uint64_t Run(const Instruction& instruction, const Segments& segments, std::span<uint8_t> memory);

  // Runs in progress end early when it says so.
  void set_stop(const StopSignal& stop) { stop_ = stop; }

  uint32_t rows() const { return rows_; }
  uint32_t columns() const { return columns_; }

  // Registers of one cell at the end of the latest cycle, row < rows(), column < columns().
  int32_t ActiveWeight(uint32_t row, uint32_t column) const;
  int32_t ShadowWeight(uint32_t row, uint32_t column) const;
  int32_t Activation(uint32_t row, uint32_t column) const;
  int32_t PartialSum(uint32_t row, uint32_t column) const;

  // Called at the end of each cycle of an instruction with its number, from 0; for tests that
  // watch the registers. An empty function (the default) switches it off.
  using Observer = std::function<void(uint64_t cycle)>;
  void set_observer(Observer observer) { observer_ = std::move(observer); }

 private:
  // Steps through the slots of an instruction (stepped_jobs.h).
  template <typename Job>
  uint64_t RunJob(Job job, std::span<uint8_t> memory);
  template <typename Job, typename Slot>
  void DriveWeights(const Job& job, const Slot& slot, std::span<const uint8_t> memory);

  // What the cells do in one cycle; MoveWeights once for each tile on its way, `age` cycles after
  // its first activation. The edges drive row 0 of shadow_weights_ and the first of Activations().
  void MoveWeights(int64_t age);
  void MoveActivations();
  void Multiply();

  // The activation registers of one row, left to right.
  int16_t* Activations(size_t row) { return activations_.data() + row * 2 * columns_ + window_; }

  uint32_t rows_;
  uint32_t columns_;
  // The registers of the cells, one plane each. Row 0 of shadow_weights_ and partial_sums_ is the
  // top edge: what enters the array there.
  std::vector<int16_t> active_weights_;  // [rows, columns]
  std::vector<int16_t> shadow_weights_;  // [1 + rows, columns]
  std::vector<int16_t> activations_;     // [rows, 2 * columns], a window of it
  std::vector<uint32_t> partial_sums_;   // [1 + rows, columns], modulo 2^32; row 0 stays zero
  size_t window_ = 0;                    // first column of the window, at most columns
  Observer observer_;
  StopSignal stop_;
};

}  // namespace atollrt
