// SPDX-License-Identifier: Apache-2.0
//
// Row bands: consecutive steps of a program computed together for some rows of the image after
// others, so that what passes between them is never on chip as a whole. Rows that neighbouring
// bands both need are computed twice. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "delegate/lowering.h"
#include "driver/timing.h"

namespace atollrt {

// One step of a program, as far as bands are concerned.
struct BandStep {
  const Node* node = nullptr;
  const NodeLowering* lowering = nullptr;
  int32_t output_rows = 0;  // of each output
  // The last step that reads an output; beyond all steps if one leaves the set.
  int32_t last_reader = 0;
};

class RowBands {
 public:
  // Steps [first, last] of `steps`, first < last, each of which divides into rows, in `bands`
  // bands, at least 1.
  RowBands(const std::vector<BandStep>& steps, size_t first, size_t last, int32_t bands);

  size_t first() const { return first_; }
  size_t last() const { return last_; }
  int32_t bands() const { return static_cast<int32_t>(rows_.size()); }
  bool Contains(size_t step) const { return first_ <= step && step <= last_; }

  // The rows of a step's outputs that a band computes; may be none.
  RowRange Rows(int32_t band, size_t step) const {
    return rows_[static_cast<size_t>(band)][step - first_];
  }
  // Whether nothing outside reads the step's outputs; they then need room for one band only.
  bool IsInternal(size_t step) const { return internal_[step - first_]; }
  // Rows of the largest band of a step's outputs.
  int32_t BandRows(size_t step) const;

  // Modelled time of all bands, issue included.
  uint64_t Cycles(const std::vector<BandStep>& steps, ArraySize array) const;

 private:
  size_t first_;
  size_t last_;
  std::vector<bool> internal_;               // per step
  std::vector<std::vector<RowRange>> rows_;  // per band and step
};

}  // namespace atollrt
