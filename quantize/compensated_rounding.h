// SPDX-License-Identifier: Apache-2.0
//
// Rounding weights one after the other, each error being made up for by the weights of the same
// channel that are still to be rounded, as far as the inputs of a layer are correlated: the
// recurrence of Optimal Brain Quantization with a fixed order, on the inverse of the inputs' second
// moments.
#pragma once

#include "atoll/status.h"
#include "quantize/emit.h"
#include "quantize/float_pass.h"

namespace atollrt {

// Layers with more inputs per output channel than this are rounded to nearest, as are depthwise,
// grouped and transposed convolutions.
inline constexpr int64_t kMaxCompensatedInputs = 1024;

// The weights of the filters that `emitted` has as bytes, into changes->rounded_weights.
Status CompensateRounding(const EditedGraph& edited, const EmittedGraph& emitted,
                          const QuantizeOptions& options, Samples* samples,
                          ProgressReporter* progress, FilterChanges* changes);

}  // namespace atollrt
