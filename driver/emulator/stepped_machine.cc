// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/stepped_machine.h"

#include <algorithm>
#include <variant>

#include "atoll/check.h"
#include "driver/emulator/stepped_array.h"
#include "driver/emulator/stepped_sequencer.h"
#include "driver/emulator/stepped_vector_unit.h"

namespace atollrt {
namespace {

// move(first, count) once in each cycle; returns how many there were.
template <typename Move>
uint64_t ForBlocks(size_t bytes, const Move& move) {
  uint64_t cycles = 0;
  for (size_t first = 0; first < bytes; first += SteppedMachine::kBlockBytes) {
    move(first, std::min(bytes - first, SteppedMachine::kBlockBytes));
    ++cycles;
  }
  return cycles;
}

// The runs of the loops from number `loop` on, one after the other.
uint64_t CopyRuns(const CopyInstruction& i, size_t loop, size_t from, size_t to,
                  std::span<uint8_t> memory, const StopSignal& stop) {
  if (loop == kCopyLoops) {
    return ForBlocks(i.bytes, [&](size_t first, size_t count) {
      std::copy_n(&memory[from + first], count, &memory[to + first]);
    });
  }
  uint64_t cycles = 0;
  const auto [count, input_stride, output_stride] = LoopsOf(i)[loop];
  for (size_t k = 0; k < count && !stop(); ++k) {
    cycles += CopyRuns(i, loop + 1, from + k * input_stride, to + k * output_stride, memory, stop);
  }
  return cycles;
}

class Machine final : public SteppedMachine {
 public:
  explicit Machine(const SteppedMachineOptions& options)
      : array_(options.rows, options.columns), vector_unit_(options.columns), sequencer_(options) {}
  uint64_t Run(const Instruction& instruction, const Segments& segments,
               std::span<uint8_t> memory) override;
  void StartProgram() override { sequencer_.Clear(); }
  void AddToProgram(const Instruction& instruction, uint64_t cycles) override {
    sequencer_.Add(instruction, cycles);
  }
  SteppedTimes ProgramTimes(uint64_t bytes_ahead) override { return sequencer_.Run(bytes_ahead); }
  void set_stop(const StopSignal& stop) override {
    stop_ = stop;
    array_.set_stop(stop);
    vector_unit_.set_stop(stop);
  }

 private:
  SteppedArray array_;
  SteppedVectorUnit vector_unit_;
  SteppedSequencer sequencer_;
  StopSignal stop_;
};

uint64_t Machine::Run(const Instruction& instruction, const Segments& segments,
                      std::span<uint8_t> memory) {
  if (UnitOf(instruction) == Unit::kVector) return vector_unit_.Run(instruction, segments, memory);
  if (UnitOf(instruction) == Unit::kArray) return array_.Run(instruction, segments, memory);
  if (const auto* copy = std::get_if<CopyInstruction>(&instruction)) {
    return CopyRuns(*copy, 0, segments.Resolve(copy->input_address),
                    segments.Resolve(copy->output_address), memory, stop_);
  }
  const auto* fill = std::get_if<FillInstruction>(&instruction);
  ATOLL_CHECK(fill != nullptr);
  const size_t to = segments.Resolve(fill->output_address);
  return ForBlocks(fill->bytes, [&](size_t first, size_t count) {
    std::fill_n(&memory[to + first], count, static_cast<uint8_t>(fill->value));
  });
}

}  // namespace

bool HasSteppedMachine() { return true; }

std::unique_ptr<SteppedMachine> MakeSteppedMachine(const SteppedMachineOptions& options) {
  return std::make_unique<Machine>(options);
}

}  // namespace atollrt
