// SPDX-License-Identifier: Apache-2.0
//
// Row bands: consecutive steps of a program, or a single one, compute some rows of the image, then
// the next ones. Tensors between them, and those that only they exchange with the host, are never
// on chip as a whole. Rows that two bands need are computed, or taken, once and kept. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "delegate/lowering.h"
#include "driver/isa/timing.h"

namespace atollrt {

// One step of a program, as far as bands are concerned.
struct BandStep {
  const Node* node = nullptr;
  const NodeLowering* lowering = nullptr;
  int32_t output_rows = 0;  // of each output
  // The last step that reads an output; beyond all steps if one leaves the set as a whole.
  int32_t last_reader = 0;
  // Its output leaves the set, and may do so in rows, in their order.
  bool may_send_rows = false;
};

// The input of a set whose rows may arrive while others are computed; tensor -1 if there is none.
struct ArrivingInput {
  int32_t tensor = -1;
  int32_t rows = 0;
  // The steps that read it.
  int32_t first_reader = 0, last_reader = -1;
};

class RowBands {
 public:
  // Steps [first, last] of `steps`, first <= last, each of which divides into rows, in `bands`
  // bands, at least 1.
  RowBands(const std::vector<BandStep>& steps, const ArrivingInput& arriving, size_t first,
           size_t last, int32_t bands);

  size_t first() const { return first_; }
  size_t last() const { return last_; }
  int32_t bands() const { return static_cast<int32_t>(rows_.size()); }
  bool Contains(size_t step) const { return first_ <= step && step <= last_; }

  // The rows of a step's outputs that a band needs, kept ones first; may be none.
  RowRange Rows(int32_t band, size_t step) const { return rows_[band][step - first_]; }
  // The rows of the band that it computes; may be none.
  RowRange ComputedRows(int32_t band, size_t step) const {
    return computed_rows_[band][step - first_];
  }
  // The rows of the band that the band before had, too.
  RowRange KeptRows(int32_t band, size_t step) const {
    const RowRange rows = Rows(band, step);
    const RowRange computed = ComputedRows(band, step);
    return {rows.begin, computed.count() > 0 ? computed.begin : rows.end};
  }
  // The most rows that one band leaves to the next, 0 if the outputs are not internal: those stay.
  int32_t MostKeptRows(size_t step) const;
  // Whether the step's outputs need room for one band only: no step outside reads them, and they do
  // not leave the set as a whole.
  bool IsInternal(size_t step) const { return internal_[step - first_]; }
  // Whether the step's output leaves the set band by band, SentRows of each.
  bool Sends(size_t step) const { return sender_ == step; }
  RowRange SentRows(int32_t band) const { return sent_rows_[band]; }

  // The input whose rows arrive band by band, or -1: that one takes room for two bands.
  int32_t arriving() const { return arriving_; }
  // Its rows that a band reads. Those that the band before had are there already.
  RowRange InputRows(int32_t band) const { return input_rows_[band]; }
  // Rows of the largest band of it.
  int32_t InputBandRows() const;
  // Rows of the largest band of a step's outputs, kept ones included.
  int32_t BandRows(size_t step) const;

  // Modelled time of all steps in all bands, issue included, without what moves rows.
  uint64_t Cycles(const std::vector<BandStep>& steps, ArraySize array) const;

 private:
  void DivideRows(const std::vector<BandStep>& steps, int32_t bands);
  void DivideInput(const std::vector<BandStep>& steps, const ArrivingInput& arriving);

  size_t first_;
  size_t last_;
  std::optional<size_t> sender_;
  std::vector<RowRange> sent_rows_;  // per band, if there is a sender
  int32_t arriving_ = -1;
  std::vector<RowRange> input_rows_;                  // per band, if an input arrives
  std::vector<bool> internal_;                        // per step
  std::vector<std::vector<RowRange>> rows_;           // per band and step
  std::vector<std::vector<RowRange>> computed_rows_;  // likewise
};

}  // namespace atollrt
