// SPDX-License-Identifier: Apache-2.0
#include "delegate/row_bands.h"

#include <algorithm>
#include <utility>

namespace atollrt {
namespace {

// The smallest range that holds both; either may be empty.
RowRange Hull(RowRange a, RowRange b) {
  if (a.count() <= 0) return b;
  if (b.count() <= 0) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

// What is to be computed of `rows` if `before` are there. Rows are needed from top to bottom; any
// other order is served, too, if not as well.
RowRange Missing(RowRange rows, RowRange before) {
  const bool goes_on = before.begin <= rows.begin && rows.begin < before.end;
  return {goes_on ? std::min(before.end, rows.end) : rows.begin, rows.end};
}

}  // namespace

RowBands::RowBands(const std::vector<BandStep>& steps, const ArrivingInput& arriving, size_t first,
                   size_t last, int32_t bands)
    : first_(first), last_(last) {
  for (size_t step = first; step <= last; ++step) {
    internal_.push_back(steps[step].last_reader <= static_cast<int32_t>(last));
    if (internal_.back() && steps[step].may_send_rows) sender_ = step;
  }
  DivideRows(steps, bands);
  if (arriving.tensor >= 0 && static_cast<int32_t>(first) <= arriving.first_reader &&
      arriving.last_reader <= static_cast<int32_t>(last)) {
    DivideInput(steps, arriving);
  }
}

// What others read and what leaves is divided evenly; what only members read follows from what they
// compute.
void RowBands::DivideRows(const std::vector<BandStep>& steps, int32_t bands) {
  const size_t count = last_ - first_ + 1;
  // Who makes what of the others' inputs.
  struct Source {
    size_t maker, position;
  };
  std::vector<std::pair<int32_t, size_t>> makers;  // of tensors, in the order of the steps
  std::vector<std::vector<Source>> sources(count);
  for (size_t i = 0; i < count; ++i) {
    const Node& node = *steps[first_ + i].node;
    for (size_t position = 0; position < node.inputs.size(); ++position) {
      for (const auto& [tensor, maker] : makers) {
        if (tensor == node.inputs[position]) sources[i].push_back({maker, position});
      }
    }
    for (const int32_t tensor : node.outputs) makers.emplace_back(tensor, i);
  }
  rows_.assign(bands, std::vector<RowRange>(count));
  computed_rows_ = rows_;
  for (int32_t band = 0; band < bands; ++band) {
    std::vector<RowRange>& rows = rows_[band];
    std::vector<RowRange>& computed = computed_rows_[band];
    for (size_t i = count; i-- > 0;) {
      const BandStep& step = steps[first_ + i];
      const bool sends = Sends(first_ + i);
      if (!internal_[i] || sends) {
        const int64_t height = step.output_rows;
        const RowRange share{static_cast<int32_t>(height * band / bands),
                             static_cast<int32_t>(height * (band + 1) / bands)};
        rows[i] = Hull(rows[i], share);
        if (sends) sent_rows_.push_back(share);
      }
      const RowRange before = band > 0 ? rows_[band - 1][i] : RowRange();
      computed[i] = Missing(rows[i], before);
      if (computed[i].count() <= 0) continue;
      for (const auto& [maker, position] : sources[i]) {
        rows[maker] = Hull(rows[maker], step.lowering->InputRows(position, computed[i]));
      }
    }
  }
}

// Rows stay until no later band reads them. Every row arrives, read or not.
void RowBands::DivideInput(const std::vector<BandStep>& steps, const ArrivingInput& arriving) {
  std::vector<RowRange> read(rows_.size());
  for (size_t band = 0; band < rows_.size(); ++band) {
    for (size_t step = first_; step <= last_; ++step) {
      const RowRange rows = computed_rows_[band][step - first_];
      if (rows.count() <= 0) continue;
      const std::vector<int32_t>& inputs = steps[step].node->inputs;
      for (size_t position = 0; position < inputs.size(); ++position) {
        if (inputs[position] != arriving.tensor) continue;
        read[band] = Hull(read[band], steps[step].lowering->InputRows(position, rows));
      }
    }
  }
  input_rows_.resize(rows_.size());
  int32_t begin = arriving.rows;
  for (size_t band = rows_.size(); band-- > 0;) {
    if (read[band].count() > 0) begin = std::min(begin, read[band].begin);
    input_rows_[band].begin = begin;
  }
  int32_t end = 0;
  for (size_t band = 0; band < rows_.size(); ++band) {
    input_rows_[band].begin = std::min(input_rows_[band].begin, end);
    end = band + 1 == rows_.size() ? arriving.rows : std::max(end, read[band].end);
    input_rows_[band].end = end;
  }
  if (2 * InputBandRows() < arriving.rows) arriving_ = arriving.tensor;
}

int32_t RowBands::InputBandRows() const {
  int32_t most = 0;
  for (const RowRange rows : input_rows_) most = std::max(most, rows.count());
  return most;
}

int32_t RowBands::BandRows(size_t step) const {
  int32_t most = 0;
  for (const std::vector<RowRange>& rows : rows_) {
    most = std::max(most, rows[step - first_].count());
  }
  return most;
}

int32_t RowBands::MostKeptRows(size_t step) const {
  int32_t most = 0;
  for (int32_t band = 0; IsInternal(step) && band < bands(); ++band) {
    most = std::max(most, KeptRows(band, step).count());
  }
  return most;
}

uint64_t RowBands::Cycles(const std::vector<BandStep>& steps, ArraySize array) const {
  uint64_t cycles = 0;
  std::vector<Instruction> program;
  for (int32_t band = 0; band < bands(); ++band) {
    for (size_t step = first_; step <= last_; ++step) {
      const RowRange rows = ComputedRows(band, step);
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
