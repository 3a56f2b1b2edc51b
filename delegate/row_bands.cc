// SPDX-License-Identifier: Apache-2.0
#include "delegate/row_bands.h"

#include <algorithm>

namespace atollrt {
namespace {

// The smallest range that holds both; either may be empty.
RowRange Hull(RowRange a, RowRange b) {
  if (a.count() <= 0) return b;
  if (b.count() <= 0) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

}  // namespace

RowBands::RowBands(const std::vector<BandStep>& steps, size_t first, size_t last, int32_t bands)
    : first_(first), last_(last) {
  const size_t count = last - first + 1;
  for (size_t step = first; step <= last; ++step) {
    internal_.push_back(steps[step].last_reader <= static_cast<int32_t>(last));
  }
  // What others read is divided evenly; what only members read follows from what they compute.
  rows_.assign(static_cast<size_t>(bands), std::vector<RowRange>(count));
  for (int32_t band = 0; band < bands; ++band) {
    std::vector<RowRange>& rows = rows_[static_cast<size_t>(band)];
    for (size_t i = count; i-- > 0;) {
      const BandStep& step = steps[first + i];
      if (!internal_[i]) {
        const int64_t height = step.output_rows;
        rows[i] = Hull(rows[i], {static_cast<int32_t>(height * band / bands),
                                 static_cast<int32_t>(height * (band + 1) / bands)});
      }
      if (rows[i].count() <= 0) continue;
      for (size_t position = 0; position < step.node->inputs.size(); ++position) {
        for (size_t j = 0; j < i; ++j) {
          const std::vector<int32_t>& made = steps[first + j].node->outputs;
          if (std::count(made.begin(), made.end(), step.node->inputs[position]) == 0) continue;
          rows[j] = Hull(rows[j], step.lowering->InputRows(position, rows[i]));
        }
      }
    }
  }
}

int32_t RowBands::BandRows(size_t step) const {
  int32_t most = 0;
  for (const std::vector<RowRange>& rows : rows_) {
    most = std::max(most, rows[step - first_].count());
  }
  return most;
}

uint64_t RowBands::Cycles(const std::vector<BandStep>& steps, ArraySize array) const {
  uint64_t cycles = 0;
  std::vector<Instruction> program;
  for (int32_t band = 0; band < bands(); ++band) {
    for (size_t step = first_; step <= last_; ++step) {
      const RowRange rows = Rows(band, step);
      if (rows.count() <= 0) continue;
      // Addresses do not matter for the time.
      OperandPlaces place;
      place.inputs.resize(steps[step].node->inputs.size());
      place.outputs.resize(steps[step].node->outputs.size());
      program.clear();
      steps[step].lowering->Emit(place, rows, &program);
      for (const Instruction& instruction : program) {
        cycles += kIssueCycles + ExecutionCycles(instruction, array);
      }
    }
  }
  return cycles;
}

}  // namespace atollrt
