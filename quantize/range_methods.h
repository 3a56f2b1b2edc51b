// SPDX-License-Identifier: Apache-2.0
//
// Ranges that leave out rare values, so that the others get finer steps.
#pragma once

#include <vector>

#include "atoll/status.h"
#include "quantize/float_pass.h"

namespace atollrt {

// The ranges of `measures`, those of activations made narrower as options.ranges says, by
// histograms of another pass over the samples; inputs of the graph and constants keep theirs.
Result<std::vector<Range>> ChooseRanges(const EditedGraph& edited, const FloatMeasures& measures,
                                        const QuantizeOptions& options, RangeMethod method,
                                        Samples* samples, ProgressReporter* progress);

}  // namespace atollrt
